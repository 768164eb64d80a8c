"""Pages and charts from what the other steps left behind."""
