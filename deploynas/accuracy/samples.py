"""What was measured: validation passes, each with the paths that its images took and how they scored.

A pass is one visit of every validation image. Passes are drawn from seeds of their own and kept, each a file,
so that a run continues where it stopped, and asking for more passes refines instead of repeating. Every
estimator reads the same passes; none needs to know a network.
"""

from __future__ import annotations

import io
import itertools
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from deploynas.accuracy.registry import SCORES, Score, require_known
from deploynas.errors import InputError
from deploynas.files import write_bytes
from deploynas.space import Decisions, Space

# how a pass is drawn, with the number that keeps the seeds of the kinds apart: a path for each image, a path for each
# batch, one network for all images, or one option fixed for all and the rest free
PASSES = {"image": 1, "batch": 2, "network": 3, "unseen": 4, "decision-paper": 5, "decision-projection": 6}


# what reading a damaged archive of arrays may raise
DAMAGED = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Scores:
    """Of every image: was the prediction right, and the log-likelihood of the right class."""

    right: np.ndarray  # bool
    log_likelihood: np.ndarray  # float32

    def values(self, score: Score) -> np.ndarray:
        require_known("score", score, SCORES)
        return {"accuracy": self.right, "log-likelihood": self.log_likelihood}[score].astype(float)


@dataclass(frozen=True)
class Pass:
    """`paths` has one row of decisions per image, or a single row when all images took the same path."""

    paths: np.ndarray
    scores: Scores

    def mean(self, score: Score) -> float:
        return float(self.scores.values(score).mean())


class Measure(Protocol):
    """Something that knows how images fare along paths: a supernet with data, or a stand-in in a test."""

    @property
    def images(self) -> int: ...

    def __call__(self, paths: np.ndarray) -> Scores:
        """`paths` has one row of decisions per image, or a single row for all."""


class Team(Protocol):
    """Processes that measure several passes at the same time."""

    @property
    def size(self) -> int: ...

    def __call__(self, passes: Sequence[np.ndarray]) -> list[Scores]:
        """Of the paths of at most `size` passes."""


class Samples:
    """The passes of one supernet on one validation set, measured when they are first asked for.

    `folder` keeps them between runs; None keeps them in memory. With a `team`, passes that will be asked for next are
    measured along with the one that is asked for.
    """

    def __init__(
        self, space: Space, measure: Measure, folder: Path | None = None, seed: int = 0, team: Team | None = None
    ) -> None:
        self.space, self.measure, self.folder, self.seed, self.team = space, measure, folder, seed, team
        self.batch = 100  # images that share a path in a pass of kind `batch`
        self._known: dict[tuple[str, int], Pass] = {}

    def get(self, kind: str, number: int, until: int | None = None) -> Pass:
        """Pass `number` of a kind: remembered, read, or measured now. Those before `until` will be asked for next."""
        if not self._has(kind, number):
            self._measure_next(kind, range(number, until or number + 1))
        return self._known[kind, number]

    def _has(self, kind: str, number: int) -> bool:
        """Whether a pass was measured before; what was kept is read."""
        if (kind, number) not in self._known:
            kept = self._read(kind, number)
            if kept is None:
                return False
            self._known[kind, number] = kept
        return True

    def _measure_next(self, kind: str, numbers: range) -> None:
        """Measure the first of the numbers, and with a team the next ones that are missing."""
        if self.team is None:
            paths = self.draw(kind, numbers.start)
            self._known[kind, numbers.start] = self._keep(kind, numbers.start, paths, self.measure(paths))
            return
        missing = list(itertools.islice((n for n in numbers if not self._has(kind, n)), self.team.size))
        drawn = [self.draw(kind, number) for number in missing]
        for number, paths, scores in zip(missing, drawn, self.team(drawn), strict=True):
            self._known[kind, number] = self._keep(kind, number, paths, scores)

    def network(self, path: np.ndarray) -> Pass:
        """A pass of one given network, kept under its own name."""
        kind, number = "given", zlib.crc32(path.tobytes())
        known = self._known.get((kind, number)) or self._read(kind, number)
        if known is None or not np.array_equal(known.paths[0], path):
            known = self._keep(kind, number, path[None], self.measure(path[None]))
        self._known[kind, number] = known
        return known

    def _keep(self, kind: str, number: int, paths: np.ndarray, scores: Scores) -> Pass:
        result = Pass(paths, scores)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            np.savez_compressed(
                content, paths=paths, right=result.scores.right, log_likelihood=result.scores.log_likelihood
            )
            write_bytes(self._path(kind, number), content.getvalue())
        return result

    def draw(self, kind: str, number: int) -> np.ndarray:
        """The paths of a pass: the same whenever it is asked for."""
        require_known("kind of pass", kind, PASSES)
        rng = np.random.default_rng((self.seed, PASSES[kind], number))
        images, decisions = self.measure.images, self.space.decisions
        if kind in ("network", "unseen"):
            return decisions.draw(1, rng)
        if kind == "batch":
            return np.repeat(decisions.draw(-(-images // self.batch), rng), self.batch, axis=0)[:images]
        paths = decisions.draw(images, rng)
        if kind == "decision-paper":
            _fix(decisions, paths, number, rng, only_home=True)
        elif kind == "decision-projection":
            _fix(decisions, paths, number, rng, only_home=False)
        elif kind != "image":
            raise AssertionError(kind)
        return paths

    def _read(self, kind: str, number: int) -> Pass | None:
        if self.folder is None or not self._path(kind, number).exists():
            return None
        path = self._path(kind, number)
        try:
            with np.load(path, allow_pickle=False) as file:
                scores = Scores(file["right"].astype(bool), file["log_likelihood"])
                found = Pass(file["paths"], scores)
        except DAMAGED as error:
            raise InputError(f"{path}: not a complete file of samples", hint="delete it to measure again") from error
        if len(found.scores.right) != self.measure.images or found.paths.shape[1] != self.space.decisions.columns:
            raise InputError(f"{path}: samples of other images or another space", hint="delete it to measure again")
        return found

    def _path(self, kind: str, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{kind}-{self.seed}-{number:05d}.npz"


def _fix(decisions: Decisions, paths: np.ndarray, number: int, rng: np.random.Generator, only_home: bool) -> None:
    """Condition paths on one option of one column, all in turn as numbers rise; every first time none is fixed.

    A choice counts at its home depth and deeper ones, or at home alone.
    """
    which = number % (1 + len(decisions))
    if which == 0:
        return
    column = int(np.searchsorted(decisions.starts, which - 1, side="right")) - 1
    paths[:, column] = which - 1 - decisions.starts[column]
    choice = column - len(decisions.groups)
    if choice < 0:
        return
    group, home = decisions.places[choice][0], decisions.home[choice]
    deepest = home + 1 if only_home else decisions.sizes[group]
    paths[:, group] = rng.integers(home, deepest, size=len(paths))


def means(passes: Sequence[Pass], score: Score) -> np.ndarray:
    return np.array([p.mean(score) for p in passes])
