"""Two sums behind a link under any limits, by branch and bound: intervals of the first index, the integer form in each.

In an interval of the first index the integer form maximises a weighted sum of both, by the link's slopes near by. What
no network exceeds in that sum bounds, since the link never falls, what any network of the interval scores. An interval
that cannot beat the networks known is done, others are cut down to where they might, and divided. As with any proof by
the integer form, tolerances of about 1e-9 of the sums are its limit.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, replace

import numpy as np

from deploynas.errors import DeployNASError
from deploynas.search.integer_form import SCALE, IntegerForm
from deploynas.search.problem import Problem
from deploynas.space import Architecture
from deploynas.space.coefficients import IndexedObjective

TOLERANCE = 1e-8  # relative, of the sums
CELLS = 256  # of an interval, to bound the link in
LEAST_WEIGHT = 1e-3  # of the second index against the first, so that the sum bounds it


@dataclass(frozen=True)
class _Interval:
    """Of the first index; no network in it scores more than `bound`; slopes are taken at `near`."""

    bound: float
    low: float
    high: float
    near: tuple[float, float]


class IndexIntervals:
    """Bounds what networks score that are not known, and finds some of them on the way."""

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.objective, IndexedObjective) and len(problem.objective.indices) == 2
        self.problem, self.objective = problem, problem.objective
        forms = [IntegerForm(replace(problem, objective=index)) for index in self.objective.indices]
        self.form, self.worth = forms[0], np.array([form.objective for form in forms])
        self.base = np.array([index.base for index in self.objective.indices])
        self.scale = SCALE / max(float(np.abs(self.worth[0]).max()), 1e-300)
        self.row = len(self.form.rows.low)
        self.form.rows.add(dict(enumerate((self.scale * self.worth[0]).tolist())), -np.inf, np.inf)
        self.found: list[tuple[float, Architecture]] = []

    def bound(self, known: list[tuple[float, Architecture]], end: float) -> float:
        """No network but those `known` and `found` scores more; stops when that is no more than the least known."""
        for _, architecture in known:
            self.form.cut_off(architecture)
        top, scores = len(known), [score for score, _ in known]
        wide = np.abs(self.worth).sum(axis=1) + 1.0
        best = tuple(index.score(known[0][1]) for index in self.objective.indices)
        most = float(self.objective.link((self.base + wide)[None])[0])
        everything = _Interval(most, self.base[0] - wide[0], self.base[0] + wide[0], (best[0], best[1]))
        waiting = [(-most, 0, everything)]
        count = 0
        while waiting:
            wanted = sorted(scores, reverse=True)[top - 1]
            interval = waiting[0][2]
            if interval.bound <= wanted or time.monotonic() > end:
                break
            heapq.heappop(waiting)
            for part in self._divided(interval, wanted, scores, end):
                count += 1
                heapq.heappush(waiting, (-part.bound, count, part))
        return max((part.bound for _, _, part in waiting), default=-np.inf)

    def _divided(self, interval: _Interval, wanted: float, scores: list[float], end: float) -> list[_Interval]:
        weights = self.objective.link.slopes(np.array([interval.near]))[0]
        weights = np.maximum(weights / max(float(weights.max()), 1e-300), [0.0, LEAST_WEIGHT])
        try:
            solved = self._maximised(interval, weights, end)
        except DeployNASError:  # nothing was found before the end
            return [interval]
        if solved is None:
            return []
        architecture, most = solved
        at = tuple(index.score(architecture) for index in self.objective.indices)
        if self.problem.allows(architecture):
            score = self.problem.score(architecture)
            scores.append(score)
            self.found.append((score, architecture))
        self.form.cut_off(architecture)
        return [part for part in self._parts(interval, weights, most, wanted, (at[0], at[1])) if part.bound > wanted]

    def _maximised(self, interval: _Interval, weights: np.ndarray, end: float) -> tuple[Architecture, float] | None:
        """The best network of the interval by the weighted sum, and what none of it exceeds; None: it is empty."""
        self.form.objective = (weights @ self.worth).tolist()
        slack = TOLERANCE * (1 + abs(self.base[0]))
        self.form.rows.low[self.row] = self.scale * (interval.low - self.base[0] - slack)
        self.form.rows.high[self.row] = self.scale * (interval.high - self.base[0] + slack)
        outcome = self.form.maximise(max(1.0, end - time.monotonic()))
        if outcome is None:
            return None
        architecture, gap = outcome
        sums = np.array([index.score(architecture) for index in self.objective.indices])
        return architecture, float(weights @ sums) + gap + TOLERANCE * (1 + float(np.abs(weights @ self.worth).max()))

    def _parts(
        self, interval: _Interval, weights: np.ndarray, most: float, wanted: float, at: tuple[float, float]
    ) -> list[_Interval]:
        """Two halves of what is left of the interval where the sum allows more than is wanted."""
        edges = np.linspace(interval.low, interval.high, CELLS + 1)
        v = (most - weights[0] * edges[:-1]) / weights[1]
        bounds = np.minimum(self.objective.link(np.stack([edges[1:], v], axis=1)), interval.bound)
        left = np.flatnonzero(bounds > wanted)
        if not len(left):
            return []
        first, last = int(left[0]), int(left[-1])
        middle = int(np.clip(np.searchsorted(edges, at[0]), first + 1, max(first + 1, last)))
        if not first < middle <= last:
            middle = (first + last + 1) // 2
        parts = []
        for a, b in ((first, middle), (middle, last + 1)):
            if a < b:
                cell = a + int(bounds[a:b].argmax())
                near = (float(edges[cell]), float(v[cell]))
                parts.append(_Interval(float(bounds[a:b].max()), float(edges[a]), float(edges[b]), near))
        return parts
