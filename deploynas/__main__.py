"""`python -m deploynas …`, which `torchrun -m deploynas` also needs."""

from deploynas.cli import main

main()
