"""What is asked of a network comes to a budget: the prediction, more by what the table is known to be off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploynas.accuracy.estimator_file import Curve, EstimatorValidation, load_estimator
from deploynas.device import Budgets, Device
from deploynas.errors import GateError, InputError
from deploynas.latency.hardware import hardware
from deploynas.latency.table import Correction, Evidence, LatencyTable, Validation
from deploynas.pipeline.budget import settle
from deploynas.pipeline.goal import AtMost, NearBest, Reaching, one_goal
from deploynas.pipeline.run import DeviceWish
from deploynas.pipeline.search_request import BudgetedTable, SearchRequest
from deploynas.pipeline.tradeoff import Tradeoff
from deploynas.search.problem import Limit


@pytest.fixture
def request_for(files: Path, quick: Device):
    table = LatencyTable.load(files / "table.json")
    validation = Validation(networks=[], mean_error=0.03, max_error=0.1, kendall_tau=None)
    correction = Correction(method="none", coefficients={}, held_out_error={}, networks=[])
    evidence = Evidence(
        device=quick,
        device_hash=quick.hash,
        parts=[],
        correction=correction,
        validation=validation,
        provenance={"hardware": hardware().model_dump()},
    )
    given = BudgetedTable(files / "table.json", replace(table, evidence=evidence))

    def build(*resources: Limit, curve: Curve | None = None) -> SearchRequest:
        estimator = load_estimator(files / "estimator.json")
        if curve:
            estimator = replace(estimator, validation=EstimatorValidation(networks=9, curve=curve))
        return SearchRequest(table.space, estimator, files / "estimator.json", [given], resources)

    return build


def test_the_promise_has_room_for_twice_the_error_of_the_table(request_for) -> None:
    tradeoff = Tradeoff.build(request_for())
    budget = settle(NearBest(0.05), tradeoff)
    number = tradeoff.best(budget.asked_ms)
    assert tradeoff.latencies_ms[number] == budget.asked_ms
    assert tradeoff.accuracies[number] >= tradeoff.accuracies[-1] - 0.05 > tradeoff.accuracies[number - 1]
    assert budget.promised_ms == pytest.approx(1.06 * budget.asked_ms)
    given = settle(AtMost(0.9), tradeoff)
    assert (given.asked_ms, given.promised_ms) == (0.9, 0.9)


def test_a_goal_is_about_accuracies_to_expect_not_about_scores(request_for) -> None:
    """Beyond a score of 0.7 networks measured no better: the fastest of those is within 0 of the best."""
    curve = Curve(predicted=[0.5, 0.7, 1.0], measured=[0.4, 0.5, 0.5])
    request = request_for(curve=curve)
    tradeoff = Tradeoff.build(request)
    for goal in (NearBest(0.0), Reaching(0.5)):
        number = tradeoff.best(settle(goal, tradeoff).asked_ms)
        assert tradeoff.points[number].score >= 0.7 > tradeoff.points[number - 1].score
    assert "no network is expected to be better" in settle(NearBest(0.0), tradeoff).reason
    with pytest.raises(GateError, match=r"the best, at .* is expected to have 50\.00 %"):
        settle(Reaching(0.51), tradeoff)


def test_where_there_is_no_frontier_optima_of_some_budgets_stand_in(request_for) -> None:
    free = Tradeoff.build(request_for())
    limited = Tradeoff.build(request_for(Limit("params", 1e9)))
    assert free.complete and not limited.complete and 2 < len(limited.points) <= 16
    for point in limited.points:
        number = free.best(point.latency_ms)
        assert free.points[number].score == pytest.approx(point.score)  # a limit that forbids nothing changes nothing
    assert limited.points[-1].score == pytest.approx(free.points[-1].score)
    assert limited.latencies_ms[0] == pytest.approx(free.latencies_ms[0])


def test_one_goal_or_none() -> None:
    assert one_goal(None, None, None) is None
    assert one_goal(2.5, None, None) == AtMost(2.5)
    assert one_goal(None, 0.77, None) == Reaching(0.77)
    assert one_goal(None, None, 1.0) == NearBest(0.01)
    for wrong in ((2.5, 0.77, None), (None, 0.77, 1.0), (0.0, None, None), (None, 0.0, None), (None, None, 100.0)):
        with pytest.raises(InputError):
            one_goal(*wrong)


def test_a_device_gets_its_own_budget_else_what_is_asked_of_all_else_that_of_its_file(quick: Device) -> None:
    limited = quick.model_copy(update={"budgets": Budgets(latency_ms=3.0)})
    assert DeviceWish(limited, 2.0).goal(None) == AtMost(2.0)
    assert DeviceWish(limited).goal(NearBest(0.02)) == NearBest(0.02)
    assert DeviceWish(limited).goal(None) == AtMost(3.0)
    assert DeviceWish(quick).goal(None) is None
    with pytest.raises(InputError, match="budget of its own"):
        DeviceWish(quick, 2.0).goal(Reaching(0.8))
