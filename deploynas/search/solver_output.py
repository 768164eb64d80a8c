"""Keeps what a solver's own code prints away from standard output, which carries results.

HiGHS, behind `scipy.optimize.milp`, prints a line about some sub-problems whatever it is told.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """Descriptor 1 leads nowhere meanwhile; Python's own `print` would be lost too."""
    try:
        kept = os.dup(1)
    except OSError:  # it is closed already
        yield
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
