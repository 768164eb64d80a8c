"""Passes are drawn once, kept, and mean the same whenever they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from deploynas.accuracy.estimation import EstimationSettings, estimate, learn, measure_contributions
from deploynas.accuracy.registry import ESTIMATION_METHODS, SCORES
from deploynas.accuracy.samples import PASSES, Samples
from deploynas.errors import InputError


class Counting(Synthetic):
    calls = 0

    def __call__(self, paths):
        self.calls += 1
        return super().__call__(paths)


@pytest.mark.parametrize("kind", PASSES)
def test_a_pass_is_measured_once_and_read_back(small, tmp_path, kind):
    world = Counting(small)
    first = Samples(small, world, tmp_path).get(kind, 3)
    again = Samples(small, world, tmp_path).get(kind, 3)
    assert world.calls == 1
    assert (first.paths == again.paths).all() and (first.scores.right == again.scores.right).all()
    assert again.scores.log_likelihood.dtype == np.float32


def test_a_team_measures_the_next_missing_passes_at_once_and_none_twice(small, tmp_path):
    class Team:
        size = 3

        def __call__(self, passes):
            asked.append(len(passes))
            return [world(paths) for paths in passes]

    world, team, asked = Counting(small), Team(), []
    Samples(small, world, tmp_path).get("image", 2)
    samples = Samples(small, world, tmp_path, team=team)
    together = [samples.get("image", number, 6) for number in range(6)]
    assert asked == [3, 2] and world.calls == 6  # 0, 1, 3 and 4, 5: number 2 was kept
    assert all((found.paths == samples.draw("image", number)).all() for number, found in enumerate(together))


def test_other_seeds_numbers_and_kinds_are_other_paths(small):
    world = Synthetic(small)
    draws = [Samples(small, world, seed=s).draw(k, n) for s, k, n in
             [(0, "image", 0), (1, "image", 0), (0, "image", 1), (0, "batch", 0)]]  # fmt: skip
    for i, a in enumerate(draws):
        assert all((a != b).any() for b in draws[i + 1 :])


def test_a_batch_shares_its_path(small):
    samples = Samples(small, Synthetic(small, images=250))
    paths = samples.draw("batch", 0)
    assert len(paths) == 250
    assert all((paths[i : i + 100] == paths[i]).all() for i in (0, 100, 200))


@pytest.mark.parametrize("estimand", ["paper", "projection"])
def test_a_decision_is_fixed_where_its_block_takes_part(small, estimand):
    samples = Samples(small, Synthetic(small))
    for number in range(1, 1 + len(small.decisions)):
        paths = samples.draw(f"decision-{estimand}", number)
        column = int(np.searchsorted(small.decisions.starts, number - 1, side="right")) - 1
        assert (paths[:, column] == number - 1 - small.decisions.starts[column]).all()
        block = column - len(small.decisions.groups)
        if block >= 0:
            assert small.decisions.counts(paths)[:, column].all()
            depths = np.unique(paths[:, small.decisions.places[block][0]])
            assert estimand == "projection" or len(depths) == 1


def test_a_damaged_pass_is_named(small, tmp_path):
    Samples(small, Synthetic(small), tmp_path).get("image", 0)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"image-0-00000\.npz"):
        Samples(small, Synthetic(small), tmp_path).get("image", 0)


def test_passes_of_other_images_are_refused(small, tmp_path):
    Samples(small, Synthetic(small, images=300), tmp_path).get("image", 0)
    with pytest.raises(InputError, match="other images"):
        Samples(small, Synthetic(small, images=200), tmp_path).get("image", 0)


def test_more_passes_refine_what_is_there(small, tmp_path):
    world = Counting(small)
    measure_contributions(Samples(small, world, tmp_path), EstimationSettings(passes=3))
    found, passes = measure_contributions(Samples(small, world, tmp_path), EstimationSettings(passes=5))
    assert (world.calls, passes) == (5, 5)
    again, _ = measure_contributions(Samples(small, world, tmp_path), EstimationSettings(passes=5))
    assert world.calls == 5 and (again.values == found.values).all()


def test_it_stops_when_the_standard_error_is_reached(small):
    samples = Samples(small, Synthetic(small))
    three, _ = measure_contributions(samples, EstimationSettings("contributions", passes=3))
    target = three.largest_error * 1.0001
    found, passes = measure_contributions(samples, EstimationSettings("contributions", passes=50, target_se=target))
    assert found.largest_error <= target and passes <= 3


def test_it_stops_at_the_passes_allowed_when_the_error_is_out_of_reach(small):
    settings = EstimationSettings("contributions", passes=4, target_se=1e-9, unseen=0)
    result = estimate(Samples(small, Synthetic(small)), settings)
    assert result.passes == 4 and not result.reached(1e-9)


def test_per_decision_needs_a_pass_for_every_option(small):
    samples = Samples(small, Synthetic(small))
    with pytest.raises(InputError, match=f"takes {1 + len(small.decisions)} passes"):
        measure_contributions(samples, EstimationSettings("contributions", sampling="per-decision", passes=5))


@pytest.mark.parametrize(
    ("method", "score"),
    [(m, s) for m in ESTIMATION_METHODS for s in SCORES if (m, s) != ("indexed", "log-likelihood")],
)
def test_every_method_ranks_unseen_networks_and_says_so(small, method, score, tmp_path):
    from deploynas.accuracy.estimator_file import load_estimator

    samples = Samples(small, Synthetic(small, images=2000))
    passes = 8 if method in ("contributions", "indexed") else 150
    plan = EstimationSettings(method=method, score=score, passes=passes, unseen=60)
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
    network = small.heaviest()
    assert loaded.predict(network) == pytest.approx(result.estimator.predict(network))


@pytest.mark.parametrize("asked", [{"score": "log-likelihood"}, {"sampling": "single-path"}, {"target_se": 0.001}])
def test_what_an_indexed_fit_cannot_take_is_refused(asked):
    with pytest.raises(InputError):
        EstimationSettings(method="indexed", **asked)


@pytest.mark.parametrize("field", ["method", "sampling", "estimand", "score"])
def test_an_unknown_name_is_refused_with_the_known_ones(field):
    with pytest.raises(InputError, match=f"no {field} `guess`") as caught:
        EstimationSettings(**{field: "guess"})
    assert caught.value.hint.startswith("one of ")


def test_contributions_are_not_learned_from_networks(small):
    networks = [Samples(small, Synthetic(small)).get("network", i) for i in range(12)]
    with pytest.raises(InputError, match="not learned"):
        learn(small, networks, EstimationSettings(method="contributions"))


def test_a_pass_that_was_damaged_anywhere_is_noticed(small, tmp_path):
    """Every byte of the file in turn: a clear error, or the pass as it was (some bytes say nothing that is used)."""
    kept = Samples(small, Synthetic(small, images=20), tmp_path)
    whole = kept.get("image", 0)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    errors = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            found = Samples(small, Synthetic(small, images=20), tmp_path).get("image", 0)
        except InputError as error:
            assert str(path) in error.message and error.hint == "delete it to measure again"
            errors += 1
        else:
            assert np.array_equal(found.paths, whole.paths)
            assert np.array_equal(found.scores.log_likelihood, whole.scores.log_likelihood)
    assert errors > len(content) / 2
