"""The preset recipes."""
