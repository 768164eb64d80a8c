"""Errors that a person can answer: what went wrong, a hint, and the exit code it maps to.

Everything raised on purpose is a `DeployNASError`; the command line prints it as one paragraph and
exits with its code. Anything else is a bug and shows a traceback.
"""

from __future__ import annotations

LONGEST_LINE = 2000  # characters; no sentence of ours is longer, but what it quotes may be


class DeployNASError(Exception):
    """Failed while running (exit code 1)."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = _printable(message)
        self.hint = None if hint is None else _printable(hint)


def _printable(text: str) -> str:
    """What a file says may stand in a message: nothing that a terminal obeys, and no line without end."""
    lines = ("".join(map(_shown, line)) for line in text.split("\n"))
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


class InputError(DeployNASError):
    """Bad usage or a bad file: nothing was done (exit code 2)."""

    exit_code = 2


class GateError(DeployNASError):
    """The work was done and its answer is no: budget infeasible, regression (exit code 3)."""

    exit_code = 3
