"""Changes to a recipe that make training take seconds."""

SETTINGS = [
    "w_h.epochs=1",
    "w_h.batch=500",
    "w_h.warmup_epochs=0",
    "w_star.epochs=1",
    "w_star.batch=500",
    "w_star.warmup_epochs=0",
    "recalibration_images=500",
    "report_networks=2",
]
