"""Pages for people and documents for CI, made from the JSON that the steps left behind."""
