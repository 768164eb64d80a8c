"""Three outcomes of a budget, of two latencies."""

from __future__ import annotations

import pytest
from timings import timing

from deploynas.outcome import outcome_of, outcome_words
from deploynas.timing import Loading


@pytest.mark.parametrize(
    ("quiet", "p50", "more", "kind", "outcome"),
    [
        (8, 9, 0, "undisturbed", "held"),
        (8, 12, 0, "undisturbed", "held undisturbed"),
        (8, 9, 2, "undisturbed", "held undisturbed"),  # more than one inference in ten is over the budget
        (11, 12, 0, "undisturbed", "missed"),
        (8, 9, 0, "p50", "held"),
        (8, 12, 0, "p50", "missed"),
        (8, 9, 2, "p90", "missed"),
        (4, 4.5, 0, "p90", "held"),
        (4, 4.5, 0, "p99", "missed"),
    ],
)
def test_what_a_budget_is_about_decides_and_both_are_said(quiet, p50, more, kind, outcome) -> None:
    found = timing(quiet, p50, more)
    assert outcome_of(found, 10.0, kind) == outcome
    words = outcome_words(found, 10.0, kind)
    assert f"{quiet:.4g} ms" in words
    assert f"{p50:.4g} ms" in words


def test_a_callers_clock_sees_the_call_too() -> None:
    """0.09 ms in nine inferences of ten, and 0.02 ms for the call from Python: not within 0.1 ms."""
    found = timing(0.08, 0.09)
    assert outcome_of(found, 0.1, "undisturbed") == "held"
    loading = Loading(load_ms=1.0, first_ms=1.0, call_ms=0.02, peak_memory_bytes=1, model_memory_bytes=1)
    called = found.model_copy(update={"loading": loading})
    assert outcome_of(called, 0.1, "undisturbed") == "held undisturbed"
    words = outcome_words(called, 0.1, "undisturbed")
    assert "held undisturbed, not with the call from Python" in words and words.endswith("; calling it adds 0.02 ms")
