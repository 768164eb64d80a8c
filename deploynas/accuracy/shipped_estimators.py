"""Estimators that come with deploynas, by name: what decisions are worth where somebody has measured it already.

Wherever the file of an estimator is expected, such a name may stand. A name that is listed here always means the
estimator that ships; anything else is a path, also `NAME.json`. Imports nothing heavy, so that a command can list the
names before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploynas.errors import InputError

FOLDER = Path(__file__).parent / "shipped"


@dataclass(frozen=True)
class ShippedEstimator:
    name: str
    space: str  # the preset whose networks it knows
    about: str  # for people, in a few words
    weights: str  # the public checkpoint whose sub-networks were measured
    run: Path  # where `deploynas import` puts it

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.json"

    @property
    def import_command(self) -> str:
        """What makes a supernet of the checkpoint, once it is downloaded."""
        return f"deploynas import ofa {self.weights} --data folder:IMAGES"


SHIPPED = {
    one.name: one
    for one in (
        ShippedEstimator(
            "ofa-mbv3-imagenet",
            "ofa-mbv3",
            "ImageNet top-1 of Once-for-all's networks",
            "ofa_mbv3_d234_e346_k357_w1.0",
            Path("runs/ofa"),
        ),
    )
}


def shipped_estimator(named: str | Path) -> ShippedEstimator | None:
    """The one of this name; None if it is a path."""
    return SHIPPED.get(str(named))


def find_estimator(named: str | Path) -> Path:
    """Where the file of an estimator is, given by its name or by its path."""
    shipped = shipped_estimator(named)
    if shipped is not None:
        return shipped.path
    path = Path(named)
    if len(path.parts) == 1 and not path.suffix and not path.exists():
        raise InputError(
            f"no estimator `{named}`",
            hint=f"one that ships ({', '.join(SHIPPED)}), or the path of a file from `deploynas estimate`",
        )
    return path
