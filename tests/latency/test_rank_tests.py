"""Mann-Whitney tests of many pairs at once: the numbers of one call each, in a number of calls that does not grow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from deploynas.latency.rank_tests import Pair, mann_whitney


def drawn(pairs: int) -> list[Pair]:
    """Of several shapes: exact and approximate, with ties and without, also in single pairs of a shape."""
    rng = np.random.default_rng(0)
    shapes, rounded = [(2, 2), (3, 8), (8, 8), (9, 9), (12, 20)], (1, 12)
    found: list[Pair] = []
    for i in range(pairs):
        first, second = (rng.normal(1.0, 0.1, size) for size in shapes[i % len(shapes)])
        digits = rounded[i % len(rounded)]
        found.append((first.round(digits).tolist(), (second + 0.05).round(digits).tolist()))
    return [*found, ([1.0, 2.0], [3.0, 4.0, 5.0]), ([1.0] * 4, [1.0] * 4)]


@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_every_p_value_is_that_of_a_call_of_its_own(alternative) -> None:
    pairs = drawn(200)
    alone = [float(stats.mannwhitneyu(first, second, alternative=alternative).pvalue) for first, second in pairs]
    assert mann_whitney(pairs, alternative) == alone


def test_calls_do_not_grow_with_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = stats.mannwhitneyu

    def counted(first, *others, **options):
        calls.append(len(first))
        return plain(first, *others, **options)

    monkeypatch.setattr(stats, "mannwhitneyu", counted)
    counts = []
    for pairs in (50, 500):
        calls.clear()
        mann_whitney(drawn(pairs), "greater")
        assert sum(calls) == pairs + 2
        counts.append(len(calls))
    assert counts[0] == counts[1] < 50


def test_nothing_to_compare() -> None:
    assert mann_whitney([], "less") == []
