"""Decisions as numbers to regress on: contrasts that sum to zero, for either meaning of a contribution.

Under uniform sampling the least-squares projection of a score on the bilinear form (eq. 3) has a closed form,
    depth[s][d] = E[y | depth_s = d] - E[y],   block[s][b][c] = E[y | c, b takes part] - E[y | b takes part],
because the choices of a block are independent of everything else. The paper's own contributions are
    depth[s][d] as above,                      block[s][b][c] = E[y | c, depth_s = home(b)] - E[y],
where home(b) is the shallowest legal depth with block b in it: depth b itself for b >= 2 wherever it is legal,
and the stage's shallowest depth for the first block. Both are linear in the coefficients of a regression on
contrasts, so one fit with its covariance serves either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploynas.accuracy.registry import ESTIMANDS, Estimand, require_known
from deploynas.space import Decisions


@dataclass(frozen=True)
class _Span:
    """Columns of the regression that stand for one column of a row, and the depths of its group where they count."""

    column: int
    group: int
    depths: range  # indices into the group's depths
    start: int


class Contrasts:
    """The columns of a regression: an intercept, and sum-to-zero contrasts of every decision."""

    def __init__(self, decisions: Decisions, estimand: Estimand) -> None:
        require_known("estimand", estimand, ESTIMANDS)
        self.decisions, self.estimand = decisions, estimand
        ranges = [(g, g, range(len(group.depths))) for g, group in enumerate(decisions.groups)]
        for (g, position), home in zip(decisions.places, decisions.home, strict=True):
            column, end = decisions.column(g, position), decisions.sizes[g]
            if estimand == "paper":  # what a block is worth at home, apart from what it is worth deeper
                ranges += [(column, g, range(home, home + 1)), (column, g, range(home + 1, end))]
            else:
                ranges += [(column, g, range(home, end))]
        self.spans: list[_Span] = []
        self.size = 1
        for column, g, depths in ranges:
            if len(depths) and decisions.sizes[column] > 1:
                self.spans.append(_Span(column, g, depths, self.size))
                self.size += decisions.sizes[column] - 1

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """One row of the regression for each row of decisions; the first column is the intercept."""
        x = np.zeros((len(rows), self.size))
        x[:, 0] = 1
        for span in self.spans:
            options = self.decisions.sizes[span.column]
            counts = np.isin(rows[:, span.group], span.depths)
            # the last line, all zeros, is for rows in which the decision takes no part
            table = np.vstack([_sum_to_zero(options), np.zeros(options - 1)])
            x[:, span.start : span.start + options - 1] = table[np.where(counts, rows[:, span.column], options)]
        return x

    @cached_property
    def contributions(self) -> np.ndarray:
        """(1 + options, columns): the base and every contribution as combinations of the coefficients."""
        decisions = self.decisions
        combine = np.zeros((1 + len(decisions), self.size))
        combine[0, 0] = 1
        for span in self.spans:
            options, where = decisions.sizes[span.column], decisions.slices[span.column]
            columns = slice(span.start, span.start + options - 1)
            if self.estimand == "projection" or self._at_home(span):
                combine[1 + where.start : 1 + where.stop, columns] = _sum_to_zero(options)
        if self.estimand == "paper":  # relative to E[y], so the depth's own worth is in
            for (g, position), home in zip(decisions.places, decisions.home, strict=True):
                where = decisions.slices[decisions.column(g, position)]
                combine[1 + where.start : 1 + where.stop] += combine[1 + decisions.starts[g] + home]
        return combine

    def _at_home(self, span: _Span) -> bool:
        """Depths are, everywhere; blocks at their shallowest depth."""
        choice = span.column - len(self.decisions.groups)
        return choice < 0 or span.depths[0] == self.decisions.home[choice]


def _sum_to_zero(options: int) -> np.ndarray:
    """(options, options - 1): deviations from the mean, the last one minus the sum of the others."""
    return np.vstack([np.eye(options - 1), -np.ones(options - 1)])
