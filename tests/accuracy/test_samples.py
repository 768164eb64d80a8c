"""Passes are drawn once, kept, and mean the same whenever they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from deploynas.accuracy.estimation import Plan, estimate, measure_contributions
from deploynas.accuracy.samples import KINDS, Samples
from deploynas.errors import InputError


class Counting(Synthetic):
    calls = 0

    def __call__(self, paths):
        self.calls += 1
        return super().__call__(paths)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_is_measured_once_and_read_back(decisions, tmp_path, kind):
    world = Counting(decisions)
    first = Samples(decisions, world, tmp_path).get(kind, 3)
    again = Samples(decisions, world, tmp_path).get(kind, 3)
    assert world.calls == 1
    assert (first.paths == again.paths).all() and (first.scores.right == again.scores.right).all()
    assert again.scores.log_likelihood.dtype == np.float32


def test_other_seeds_numbers_and_kinds_are_other_paths(decisions):
    world = Synthetic(decisions)
    draws = [Samples(decisions, world, seed=s).draw(k, n) for s, k, n in
             [(0, "image", 0), (1, "image", 0), (0, "image", 1), (0, "batch", 0)]]  # fmt: skip
    for i, a in enumerate(draws):
        assert all((a != b).any() for b in draws[i + 1 :])


def test_a_batch_shares_its_path(decisions):
    samples = Samples(decisions, Synthetic(decisions, images=250))
    paths = samples.draw("batch", 0)
    assert len(paths) == 250
    assert all((paths[i : i + 100] == paths[i]).all() for i in (0, 100, 200))


@pytest.mark.parametrize("estimand", ["paper", "projection"])
def test_a_decision_is_fixed_where_its_block_takes_part(decisions, estimand):
    samples = Samples(decisions, Synthetic(decisions))
    for number in range(1, 1 + len(decisions)):
        paths = samples.draw(f"decision-{estimand}", number)
        column = int(np.searchsorted(decisions.starts, number - 1, side="right")) - 1
        assert (paths[:, column] == number - 1 - decisions.starts[column]).all()
        block = column - len(decisions.space.stages)
        if block >= 0:
            assert decisions.taking_part(paths)[:, block].all()
            depths = np.unique(paths[:, decisions.blocks[block][0]])
            assert estimand == "projection" or len(depths) == 1


def test_a_damaged_pass_is_named(decisions, tmp_path):
    Samples(decisions, Synthetic(decisions), tmp_path).get("image", 0)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"image-0-00000\.npz"):
        Samples(decisions, Synthetic(decisions), tmp_path).get("image", 0)


def test_passes_of_other_images_are_refused(decisions, tmp_path):
    Samples(decisions, Synthetic(decisions, images=300), tmp_path).get("image", 0)
    with pytest.raises(InputError, match="other images"):
        Samples(decisions, Synthetic(decisions, images=200), tmp_path).get("image", 0)


def test_more_passes_refine_what_is_there(decisions, tmp_path):
    world = Counting(decisions)
    measure_contributions(Samples(decisions, world, tmp_path), Plan(passes=3))
    found, passes = measure_contributions(Samples(decisions, world, tmp_path), Plan(passes=5))
    assert (world.calls, passes) == (5, 5)
    again, _ = measure_contributions(Samples(decisions, world, tmp_path), Plan(passes=5))
    assert world.calls == 5 and (again.values == found.values).all()


def test_it_stops_when_the_standard_error_is_reached(decisions):
    samples = Samples(decisions, Synthetic(decisions))
    three, _ = measure_contributions(samples, Plan(passes=3))
    target = three.largest_error * 1.0001
    found, passes = measure_contributions(samples, Plan(passes=50, target_se=target))
    assert found.largest_error <= target and passes <= 3


def test_it_stops_at_the_passes_allowed_when_the_error_is_out_of_reach(decisions):
    result = estimate(Samples(decisions, Synthetic(decisions)), Plan(passes=4, target_se=1e-9, unseen=0))
    assert result.passes == 4 and not result.reached(1e-9)


def test_per_decision_needs_a_pass_a_decision(decisions):
    samples = Samples(decisions, Synthetic(decisions))
    with pytest.raises(InputError, match=f"takes {1 + len(decisions)} passes"):
        measure_contributions(samples, Plan(sampling="per-decision", passes=5))


@pytest.mark.parametrize("method", ["contributions", "separable", "bilinear", "quadratic", "mlp"])
@pytest.mark.parametrize("score", ["accuracy", "log-likelihood"])
def test_every_method_ranks_unseen_networks_and_says_so(decisions, method, score, tmp_path):
    from deploynas.accuracy.estimator_file import load_estimator

    samples = Samples(decisions, Synthetic(decisions, images=2000))
    plan = Plan(method=method, score=score, passes=8 if method == "contributions" else 150, unseen=60)
    result = estimate(samples, plan, {"supernet": "synthetic"})
    validation = result.estimator.validation
    assert validation.networks == 60 and validation.kendall_tau > 0.5
    low, high = validation.kendall_tau_interval
    assert low < validation.kendall_tau < high
    assert 0 < validation.mean_error < 0.1
    result.estimator.save(tmp_path / "e.json")
    loaded = load_estimator(tmp_path / "e.json")
    assert loaded.validation == validation
    assert loaded.provenance["method"] == method and loaded.provenance["supernet"] == "synthetic"
    network = decisions.space.heaviest()
    assert loaded.predict(network) == pytest.approx(result.estimator.predict(network))
