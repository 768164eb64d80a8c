"""Bad input is refused in one sentence, and an infeasible budget is answered with what can be had."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tiny_problems import random_instance, tiny_space

import deploynas as dn
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
        ({"block": [blocks(0.0)[0], blocks(0.0)[0]]}, "stage 2 must be"),
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
    require_feasible(Problem.of(SPACE, estimator_with(), [Limit(table, 4.0) for table in tables]))


def test_cost_ranges_are_those_of_the_space():
    (found,) = cost_ranges(Problem.of(SPACE, estimator_with(), [Limit(TABLE, 4.0)]))
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
    estimator = estimator_with(
        base_se=0.03, depth_se=[[0.04, 0.04], [0.0, 0.0]], block_se=[[[0.0] * 3] * 2, [[0.0] * 2] * 3]
    )
    result = dn.search(SPACE, estimator, [Limit(TABLE, 6.0)])
    assert result.accuracy_se == pytest.approx(0.05)  # root of 0.03^2 + 0.04^2
    assert result.costs == dn.Costs.of(SPACE, result.architecture)
    assert result.limits[0].relative_error is None
    assert dn.search(SPACE, estimator_with(), [Limit(TABLE, 6.0)]).accuracy_se is None


def test_thinning_keeps_both_ends_and_the_optimum_of_every_even_budget():
    estimator, (table,) = random_instance(dn.Space.load("imagenet"), 0)
    points = dn.frontier(dn.Space.load("imagenet"), estimator, table)
    thin = points.thin(7)
    assert len(thin) <= 7 < len(points)
    assert thin[0] == points[0] and thin[-1] == points[-1]
    step = (points.latencies_ms[-1] - points.latencies_ms[0]) / 6
    assert thin[1] == points.best(float(points.latencies_ms[0] + step))


@pytest.mark.parametrize(
    "imports",
    [
        "import deploynas.search.problem; import deploynas as dn",
        "import deploynas as dn; import deploynas.search.problem, deploynas.search.frontier",
        "from deploynas.search.milp import Milp; import deploynas as dn; dn.frontier; dn.Limit",
    ],
)
def test_search_and_frontier_stay_functions_whatever_is_imported_first(imports):
    check = "import types; assert isinstance(dn.search, types.FunctionType) and callable(dn.frontier)"
    subprocess.run([sys.executable, "-c", f"{imports}; {check}"], check=True)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, deploynas; assert not {'numpy', 'scipy', 'torch', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
