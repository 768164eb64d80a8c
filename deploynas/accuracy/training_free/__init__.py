"""Scores of networks that were never trained, and what single decisions are worth in them: they rank, no more."""
