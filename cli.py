"""`python cli.py …` from a clone is `deploynas …` once installed."""

from deploynas.cli import main

main()
