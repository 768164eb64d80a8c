"""Errors that a person can answer: what went wrong, a hint, and the exit code it maps to.

Everything raised on purpose is a `DeployNASError`; the command line prints it as one paragraph and
exits with its code. Anything else is a bug and shows a traceback.
"""

from __future__ import annotations


class DeployNASError(Exception):
    """Failed while running (exit code 1)."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(DeployNASError):
    """Bad usage or a bad file: nothing was done (exit code 2)."""

    exit_code = 2


class GateError(DeployNASError):
    """The work was done and its answer is no: budget infeasible, regression (exit code 3)."""

    exit_code = 3
