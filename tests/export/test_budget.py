"""The loop that keeps a promise: it ends within the budget, or says what was reached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploynas.errors import GateError
from deploynas.export.budget import Attempt, within_budget


def device(factor: float, step: float = 0.0):
    """A solver that uses the target up to a step, and a device that is slower than its table by a factor."""

    def attempt(target_ms: float) -> Attempt[float]:
        predicted = target_ms * (1 - step)
        return Attempt(target_ms, predicted, predicted * factor, predicted)

    return attempt


@given(factor=st.floats(0.5, 3), budget=st.floats(0.01, 100), step=st.floats(0, 0.2))
def test_a_table_that_is_off_by_a_constant_needs_one_correction(factor: float, budget: float, step: float) -> None:
    attempts = within_budget(budget, device(factor, step), rounds=3)
    assert attempts[-1].measured_ms <= budget
    assert len(attempts) <= 2
    assert [made.target_ms for made in attempts] == sorted({made.target_ms for made in attempts}, reverse=True)


def test_the_target_is_tightened_by_the_observed_ratio() -> None:
    first, second = within_budget(10.0, device(1.25), rounds=3)
    assert (first.target_ms, first.measured_ms) == (10.0, 12.5)
    assert second.target_ms == pytest.approx(10.0 * 10.0 / 12.5, rel=0.01) and second.measured_ms < 10.0


def test_after_the_last_round_the_error_names_what_was_reached() -> None:
    measured = iter([12.0, 11.0, 11.5])
    with pytest.raises(GateError, match=r"budget of 10 ms is not met: the fastest of 3 networks took 11 ms") as caught:
        within_budget(10.0, lambda target: Attempt(target, target, next(measured), None), rounds=3)
    assert caught.value.exit_code == 3


def test_when_nothing_smaller_exists_the_error_says_both() -> None:
    def attempt(target_ms: float) -> Attempt[None]:
        if target_ms < 10.0:
            raise GateError("no network is within it")
        return Attempt(target_ms, 10.0, 12.0, None)

    with pytest.raises(GateError, match=r"took 12 ms; tightened to 8\.292 ms, no network is within it"):
        within_budget(10.0, attempt, rounds=3)


def test_a_budget_that_no_network_can_meet_is_the_solvers_to_explain() -> None:
    def attempt(target_ms: float) -> Attempt[None]:
        raise GateError("the fastest needs 3 ms")

    with pytest.raises(GateError, match=r"^the fastest needs 3 ms$"):
        within_budget(1.0, attempt, rounds=3)
