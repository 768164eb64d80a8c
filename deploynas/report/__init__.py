"""Pages, charts and documents, made from what the other steps left behind."""
