"""Elastic blocks, the one-shot network made of them, and stand-alone sub-networks out of it."""
