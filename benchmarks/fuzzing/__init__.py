"""Files that nobody meant: mutated, read through the product, and watched while they are. See `../fuzz.py`."""
