"""The steps together: what `run`, the single commands and the Python API call."""
