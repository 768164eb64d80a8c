from __future__ import annotations

import numpy as np
import pytest

from deploynas.latency.correction import (
    FORMS,
    PER_KIND,
    FittedCorrection,
    IsolatedTable,
    fit,
    forms_of,
    kinds_of,
    spread_out,
)
from deploynas.latency.statistic import relative_error, summarise
from deploynas.space import Architecture, Space


def isolated_table(space: Space, rng: np.random.Generator) -> IsolatedTable:
    blocks = tuple(
        tuple(tuple(rng.uniform(0.5, 2.0, len(stage.configs))) for _ in range(stage.max_depth))
        for stage in space.stages
    )
    return IsolatedTable(space, 0.7, blocks)


TRUTHS = {
    "sum": {},
    "scale": {"scale": 0.8},
    "affine": {"scale": 0.9, "constant": 0.4},
    "layout": {"scale": 1.1, "constant": 0.3, "per_block": 0.05, "per_element": -0.2},
}


@pytest.mark.parametrize("method", TRUTHS)
def test_a_planted_correction_is_found(method: str, imagenet: Space, rng: np.random.Generator) -> None:
    table = isolated_table(imagenet, rng)
    truth = FittedCorrection(method, TRUTHS[method], {})
    fixed, blocks = truth.apply(table)
    networks = [imagenet.sample(rng) for _ in range(40)]
    measured = [fixed + sum(blocks[s][b][c] for s, b, c in a.blocks()) for a in networks]
    found = fit([table], networks, measured)
    assert found.held_out_error[found.method] < 1e-9
    found_fixed, found_blocks = found.apply(table)
    np.testing.assert_allclose(found_fixed, fixed, rtol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([np.ravel(s) for s in found_blocks]), np.concatenate([np.ravel(s) for s in blocks])
    )
    assert set(found.held_out_error) == set(FORMS)


def test_every_operation_of_a_cell_may_have_a_scale_of_its_own(rng: np.random.Generator) -> None:
    """A pooling that is mostly conversions when it is measured alone, a convolution that is mostly itself."""
    space = Space.load("nasbench201")
    (group,) = space.built_groups
    table = IsolatedTable(space, 0.7, (tuple(tuple(rng.uniform(0.5, 2.0, 5)) for _ in group.choices),))
    scales = {"skip_connect": 0.2, "nor_conv_1x1": 0.5, "nor_conv_3x3": 0.9, "avg_pool_3x3": 0.3}
    assert kinds_of(space) == tuple(f"scale/{name}" for name in scales)
    truth = {"constant": 0.1, **{f"scale/{name}": scale for name, scale in scales.items()}}
    networks = [space.sample(rng) for _ in range(40)]
    measured = [sum(truth.get(name, 0.0) * term for name, term in table.terms(a).items()) for a in networks]
    found = fit([table], networks, measured)
    assert found.method == PER_KIND
    assert found.coefficients == pytest.approx(truth)
    fixed, ((first, *_),) = found.apply(table)
    assert fixed == pytest.approx(0.1) and first[0] == 0  # `none` takes no time
    assert first[1:] == pytest.approx([s * ms for s, ms in zip(scales.values(), table.block_ms[0][0][1:], strict=True)])


def test_a_space_of_one_kind_has_no_scales_by_kind(imagenet: Space) -> None:
    assert len(kinds_of(imagenet)) == 1 and set(forms_of(imagenet)) == set(FORMS)


def test_without_networks_the_plain_sum_remains(tiny: Space, rng: np.random.Generator) -> None:
    assert fit([isolated_table(tiny, rng)], [], []).method == "sum"


def test_a_correction_with_negative_times_is_not_chosen(tiny: Space, rng: np.random.Generator) -> None:
    table = isolated_table(tiny, rng)
    networks = [tiny.sample(rng) for _ in range(30)]
    measured = [max(0.01, 3.0 - 0.5 * table.terms(a)["scale"]) for a in networks]  # faster when larger
    fixed, blocks = fit([table], networks, measured).apply(table)
    assert fixed >= 0 and all(ms >= 0 for stage in blocks for row in stage for ms in row)


def test_statistics_by_hand() -> None:
    samples = [1.0, 2.0, 3.0, 4.0, 10.0]
    found = [summarise(samples, name) for name in ("mean", "median", "min", "p25", "p50")]
    assert found == [4.0, 3.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_the_interval_covers_the_truth(statistic: str) -> None:
    """Visits with effects of their own: the 95 % interval must hold its promise, and samples alone would not."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        visits = [list(10 + rng.normal(0, 0.5) + rng.normal(0, 0.1, 8)) for _ in range(12)]
        estimate = summarise(np.concatenate(visits), statistic)
        covered += abs(estimate - 10) <= relative_error(visits, statistic) * estimate
    # 95 % asked for; 300 trials scatter by 1.3 points, and the bootstrap of a median is a coarse one
    assert 0.90 <= covered / 300 <= 0.99


def test_one_visit_says_nothing_about_its_error() -> None:
    assert relative_error([[1.0, 1.0]], "median") == float("inf")


def test_correction_networks_are_spread_out(rng: np.random.Generator) -> None:
    """They say more about the terms of a correction than as many random ones."""
    space = Space.load("imagenet")
    chosen, drawn = spread_out(space, 30, rng), [space.sample(rng) for _ in range(30)]
    assert len(set(chosen)) == 30 and {space.smallest(), space.heaviest()} <= set(chosen)
    table = isolated_table(space, rng)

    def information(networks: list[Architecture]) -> float:
        rows = np.array([list(table.terms(network).values()) for network in networks])
        return float(np.linalg.slogdet(rows.T @ rows)[1])

    assert information(chosen) > information(drawn) + 2
