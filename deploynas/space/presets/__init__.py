"""The preset search spaces and the form of a space file."""
