"""Bad input is refused in one sentence, and an infeasible budget is answered with what can be had."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from tiny_problems import random_instance, tiny_space

import deploynas as dn
from deploynas.accuracy.bilinear import StandardErrors
from deploynas.accuracy.estimator_file import Curve, EstimatorValidation
from deploynas.errors import GateError, InputError
from deploynas.search.feasibility import cost_ranges, require_feasible
from deploynas.search.problem import Limit, Problem
from deploynas.search.result import one_each

SPACE = tiny_space([((1, 2), 3), ((1, 3), 2)])


def blocks(value: float) -> list:
    return [[[value] * len(s.configs)] * s.max_depth for s in SPACE.stages]


def estimator_with(**changes) -> dn.BilinearEstimator:
    arrays = {"base": 0.5, "depth": [[0.0, 0.0], [0.0, 0.0]], "block": blocks(0.01)}
    return dn.BilinearEstimator.from_arrays(SPACE, **{**arrays, **changes})


TABLE = dn.LatencyTable.from_arrays(SPACE, 1.0, blocks(1.0))  # 1 ms a block, 2 to 5 blocks


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf"), "10", None, True])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(InputError, match="budget"):
        Limit(TABLE, budget)


def test_an_unknown_resource_is_refused():
    with pytest.raises(InputError, match="no resource `watts`"):
        Limit("watts", 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": float("nan")}, "base must be finite"),
        ({"block": blocks(float("nan"))}, "must be finite"),
        ({"block": blocks(0.0)[:1]}, "1 stages"),
        ({"block": [blocks(0.0)[0], blocks(0.0)[0]]}, "stage 2 must be 3 blocks of 2, 2, 2 options, got 2 of 3, 3"),
        ({"depth": [[0.0], [0.0, 0.0]]}, "stage 1 must have 2 depths"),
    ],
)
def test_coefficients_that_are_none_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        estimator_with(**changes)


def test_a_table_or_an_estimator_of_another_space_is_refused():
    other = tiny_space([((1, 2), 3), ((1, 3), 3)])
    estimator, (table,) = random_instance(other, 0)
    with pytest.raises(InputError, match="another search space"):
        dn.search(SPACE, estimator_with(), [Limit(table, 5)])
    with pytest.raises(InputError, match="another search space"):
        dn.search(SPACE, estimator, [Limit(TABLE, 5)])
    with pytest.raises(InputError, match="another search space"):
        dn.frontier(SPACE, estimator_with(), table)


def test_an_infeasible_budget_names_the_limit_the_fastest_network_and_its_cost():
    with pytest.raises(GateError) as caught:
        dn.search(SPACE, estimator_with(), [Limit(TABLE, 2.5), Limit("params", 1e9)])
    assert "latency_ms on unnamed device: no network is within 2.5" in caught.value.message
    assert "the fastest needs 3: " in caught.value.message  # 1 ms fixed and two blocks
    fastest = dn.Architecture.parse(caught.value.message.rsplit(": ", 1)[1], SPACE)
    assert TABLE.predict(fastest) == 3
    assert caught.value.exit_code == 3


def test_limits_that_exclude_each_other_are_answered_with_what_comes_closest():
    # two devices that like opposite configurations: 2 blocks at 1 and 3 ms
    first = [[[1.0, 3.0, 3.0]] * 2, [[1.0, 3.0]] * 3]
    second = [[[3.0, 1.0, 3.0]] * 2, [[3.0, 1.0]] * 3]
    tables = [dn.LatencyTable.from_arrays(SPACE, 0.0, costs) for costs in (first, second)]
    with pytest.raises(GateError, match="not all together") as caught:
        dn.search(SPACE, estimator_with(), [Limit(table, 2.0) for table in tables])
    # by hand: one block each way, 4 ms on both
    assert "4 of 2" in caught.value.message
    assert "100 %" in caught.value.hint
    require_feasible(Problem.build(SPACE, estimator_with(), [Limit(table, 4.0) for table in tables]))


def test_cost_ranges_are_those_of_the_space():
    (found,) = cost_ranges(Problem.build(SPACE, estimator_with(), [Limit(TABLE, 4.0)]))
    # 1 ms fixed; two to five blocks; depths 2, 3, 4, 5 equally likely (1 or 2, and 1 or 3)
    assert (found.smallest, found.heaviest) == (3.0, 6.0)
    assert found.median in (4.0, 4.5, 5.0)
    assert found.share_within == pytest.approx(0.5, abs=0.05)


def test_one_network_each_is_never_worse_than_the_shared_one():
    estimator, tables = random_instance(SPACE, 4, tables=2)
    limits = [Limit(tables[0], 4.0), Limit(tables[1], 4.0)]
    shared = dn.search(SPACE, estimator, limits)
    each = one_each(SPACE, estimator, limits)
    assert len(each) == 2
    for own, limit in zip(each, limits, strict=True):
        assert own.accuracy >= shared.accuracy
        assert own.latency_ms == limit.of.predict(own.architecture) <= limit.budget


def test_the_result_carries_what_is_known_about_its_errors():
    errors = StandardErrors.checked(SPACE, 0.03, [[0.04, 0.04], [0.0, 0.0]], blocks(0.0))
    estimator = estimator_with(errors=errors)
    result = dn.search(SPACE, estimator, [Limit(TABLE, 6.0)])
    assert result.accuracy_se == pytest.approx(0.05)  # root of 0.03^2 + 0.04^2
    assert result.costs == dn.Costs.of(SPACE, result.architecture)
    assert result.limits[0].relative_error is None
    assert dn.search(SPACE, estimator_with(), [Limit(TABLE, 6.0)]).accuracy_se is None


def test_an_accuracy_is_what_to_expect_and_the_score_what_was_maximised():
    curve = Curve(predicted=[0.5, 0.6], measured=[0.4, 0.5])  # networks with such scores measured 0.1 less
    validated = replace(estimator_with(), validation=EstimatorValidation(networks=5, curve=curve))
    result = dn.search(SPACE, validated, [Limit(TABLE, 6.0)])
    assert result.score == pytest.approx(0.55) and result.accuracy == pytest.approx(0.45)
    plain = dn.search(SPACE, estimator_with(), [Limit(TABLE, 6.0)])
    assert plain.accuracy == plain.score and plain.accuracy_interval is None
    errors = StandardErrors.checked(SPACE, 0.03, [[0.0, 0.0], [0.0, 0.0]], blocks(0.0))
    low, high = dn.search(SPACE, estimator_with(errors=errors), [Limit(TABLE, 6.0)]).accuracy_interval
    assert (low, high) == pytest.approx((0.55 - 1.645 * 0.03, 0.55 + 1.645 * 0.03), abs=1e-4)  # 90 %
    asked = dn.search(SPACE, dn.ask(estimator_with()), [Limit(TABLE, 6.0)], solver="evolution")
    assert asked.accuracy == asked.score and asked.accuracy_se is None


def test_thinning_keeps_both_ends_and_the_optimum_of_every_even_budget():
    estimator, (table,) = random_instance(dn.Space.load("imagenet"), 0)
    points = dn.frontier(dn.Space.load("imagenet"), estimator, table)
    thin = points.thin(7)
    assert len(thin) <= 7 < len(points)
    assert thin[0] == points[0] and thin[-1] == points[-1]
    step = (points.latencies_ms[-1] - points.latencies_ms[0]) / 6
    assert thin[1] == points.best(float(points.latencies_ms[0] + step))


def test_a_frontier_is_asked_for_an_accuracy_or_for_its_knee():
    # by hand: two to five blocks, 1 ms and 0.01 each beside 1 ms and 0.5
    points = dn.frontier(SPACE, estimator_with(), TABLE)
    assert [(p.latency_ms, round(p.accuracy, 9)) for p in points] == [(3, 0.52), (4, 0.53), (5, 0.54), (6, 0.55)]
    assert points.reaching(0.0).latency_ms == 3
    assert points.reaching(points[2].accuracy) == points[2]
    assert points.reaching(0.535).latency_ms == 5
    assert points.reaching(0.56) is None
    assert points.knee(within=0.015).latency_ms == 5
    assert points.knee(within=0) == points[-1]
    assert points.knee(within=1) == points[0]
    with pytest.raises(InputError, match="within"):
        points.knee(within=-0.1)
    assert dn.frontier(SPACE, estimator_with(), TABLE, [Limit("peak_memory_bytes", 1)]).reaching(0.1) is None


class Blocks:
    """An estimator of somebody else's: it only ranks, by the number of blocks."""

    def __init__(self, space: dn.Space) -> None:
        self.space = space

    def predict(self, architecture: dn.Architecture) -> float:
        return 100.0 * sum(architecture.depths)


def test_a_score_that_only_ranks_is_no_accuracy(tmp_path):
    from deploynas.search.result_file import NetworkRecord, network_record

    found = dn.search(SPACE, dn.ask(Blocks(SPACE), scale="ordinal"), [Limit(TABLE, 5.0)], solver="evolution")
    assert found.score == 400.0  # 1 ms fixed and four blocks
    assert found.accuracy is None and found.accuracy_se is None
    record = network_record(found)
    assert (record.score, record.accuracy) == (400.0, None)
    assert NetworkRecord.model_validate(record.model_dump()) == record
    with pytest.raises(InputError, match="scale"):
        dn.ask(Blocks(SPACE), scale="percent")


def test_an_estimator_that_lacks_something_is_told_what():
    with pytest.raises(InputError, match="Blocks lacks `predict_se`, `objective`") as caught:
        dn.search(SPACE, Blocks(SPACE), [Limit(TABLE, 5.0)])
    assert "deploynas.ask" in caught.value.hint


def test_an_objective_of_a_new_kind_goes_to_the_solvers_that_can_only_ask():
    from deploynas.search.solver import SOLVERS
    from deploynas.space.coefficients import Objective

    class Product(Objective):
        form, scale = "a product of depths", "ordinal"

        def score(self, architecture: dn.Architecture) -> float:
            return float(architecture.depths[0] * architecture.depths[1])

    class Own(Blocks):
        def predict_se(self, architecture: dn.Architecture) -> None:
            return None

        def objective(self) -> Objective:
            return Product()

    assert dn.search(SPACE, Own(SPACE), [Limit(TABLE, 9.0)], solver="evolution").score == 2 * 3
    assert dn.search(SPACE, Own(SPACE), [Limit(TABLE, 9.0)], solver="best-of").score == 2 * 3
    for solver in set(SOLVERS) - {"evolution", "best-of"}:
        with pytest.raises(InputError, match="cannot maximise a product of depths") as caught:
            dn.search(SPACE, Own(SPACE), [Limit(TABLE, 9.0)], solver=solver)
        assert caught.value.hint == "use `--solver evolution` or `--solver best-of`"


def test_limits_in_files_of_before_have_their_unit_from_their_name():
    from deploynas.search.result_file import LimitRecord

    def unit(name: str) -> str:
        return LimitRecord.model_validate({"name": name, "predicted": 1, "budget": 2, "relative_error": None}).unit

    assert unit("latency_ms on cpu-1t") == unit("latency_ms on cpu-1t (2)") == "ms"
    assert unit("params") == unit("macs (2)") == "count"
    assert unit("peak_memory_bytes") == "bytes"


@pytest.mark.parametrize(
    "imports",
    [
        "import deploynas.search.problem; import deploynas as dn",
        "import deploynas as dn; import deploynas.search.problem, deploynas.search.frontier",
        "from deploynas.search.milp import Milp; import deploynas as dn; dn.frontier; dn.Limit",
    ],
)
def test_the_package_search_is_also_the_function_whatever_is_imported_first(imports):
    check = (
        "import inspect, sys; from deploynas.search import search; import deploynas.search.problem as p; "
        "assert inspect.isfunction(search) and p.Limit is dn.Limit and dn.search is sys.modules['deploynas.search']; "
        "s = dn.Space.load('fashion'); f = lambda v: [[[v] * len(g.configs)] * g.max_depth for g in s.stages]; "
        "e = dn.BilinearEstimator.from_arrays(s, 0.5, [[0.0] * len(g.depths) for g in s.stages], f(0.01)); "
        "found = dn.search(s, e, [dn.Limit('params', 1e9)]); "
        "assert found.accuracy == search(s, e, [dn.Limit('params', 1e9)]).accuracy > 0.5"
    )
    subprocess.run([sys.executable, "-c", f"{imports}; {check}"], check=True)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, deploynas; assert not {'numpy', 'scipy', 'torch', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
