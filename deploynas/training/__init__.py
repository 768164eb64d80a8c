"""Data, recipes, the loop, checkpoints and distribution: how a supernet and its sub-networks are trained."""
