"""The training-free scores by name, and what a user reads about each. A score is a file with a class, and a line here.

Imports nothing heavy, so that a command can list the names before anything is loaded.
"""

from __future__ import annotations

from typing import Literal

TRAINING_FREE_SCORES = {
    "grad": "deploynas.accuracy.training_free.grad:Grad",
    "snip": "deploynas.accuracy.training_free.snip:Snip",
    "synflow": "deploynas.accuracy.training_free.synflow:Synflow",
    "trace": "deploynas.accuracy.training_free.trace:Trace",
    "kappa": "deploynas.accuracy.training_free.kappa:Kappa",
    "knas": "deploynas.accuracy.training_free.knas:Knas",
}
NASI = "nasi"  # `search --solver nasi`: a ranking of decisions, of no network on its own
HNAS = "hnas"  # `search --solver hnas`: kappa and one of these in an objective that validations choose
HNAS_METRICS = ("grad", "snip", "trace", "knas")
DEFAULT_METRIC = "trace"
DEFAULT_SCORE = "synflow"
TrainingFreeScore = Literal["grad", "snip", "synflow", "trace", "kappa", "knas"]

# where contributions of single decisions come from: a batch in which every image takes its own path, whole networks, or
# (of NASI, which has no score of a network) the weights of choices
Reading = Literal["multi-path", "networks", "gumbel"]

WORDS = {
    "grad": "length of the mean gradient of the loss",
    "snip": "sum of |weight x gradient of the loss|",
    "synflow": "sum of |weight x gradient| of the summed outputs, weights made positive, one image of ones",
    "trace": "root of the tangent kernel's trace per image",
    "kappa": "condition number of the tangent kernel, the smaller the better",
    "knas": "root of the mean entry of the tangent kernel",
    NASI: "weights of choices, by what they add to the length of the mean gradient up to a limit",
}
