"""What decisions are worth at each input size: found where it is planted, absent where it is not, the same everywhere
that an estimator is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from planted import SPACE, bent, both_needed, index

import deploynas as dn
from deploynas.accuracy.at_network import worth_at
from deploynas.accuracy.averages import average_worth
from deploynas.accuracy.changes import single_changes
from deploynas.accuracy.comparisons import comparisons_of
from deploynas.accuracy.index_terms import Terms
from deploynas.accuracy.indexed import Index, IndexedEstimator, Refit, SizeDeviation
from deploynas.accuracy.indexed_fit import fit_indexed, fit_indexed_samples
from deploynas.accuracy.network_comparison import compare_networks
from deploynas.accuracy.refinement import MeasuredNetwork, refine
from deploynas.accuracy.samples import Pass, Samples, Scores
from deploynas.errors import InputError
from deploynas.space.link import Link

SIZED = replace(SPACE, name="sized", sizes=(16, 20, 28))
STRAIGHT = Link(0.7, np.array([0.02]))


def sized_index(seed: int, deviation: float) -> Index:
    """What a size is worth, and what depths and factors are worth more at 28 than at 20, and less at 16."""
    plain, rng = index(seed), np.random.default_rng((seed, 1))
    depth, block = [], []
    for stage in SIZED.stages:
        of_depth = rng.normal(scale=0.5 * deviation, size=len(stage.depths))
        ratio, kernel, se = rng.normal(scale=0.3 * deviation, size=3)
        of_block = np.array(
            [ratio * np.log2(c.ratio) + kernel * (c.kernel == 5) + se * (c.se > 0) for c in stage.configs]
        )
        depth.append(of_depth - of_depth.mean())
        block.append(np.tile(of_block - of_block.mean(), (stage.max_depth, 1)))
    more = [
        SizeDeviation([*(times * own for own in depth), [0.0]], [*(times * own for own in block), [[0.0] * 3]])
        for times in (-1, 0, 1)
    ]
    worth = rng.normal(scale=0.3, size=3)
    by_size = more if deviation else ()
    return Index.from_arrays(SIZED, 0.0, [*plain.depth, [0.0]], [*plain.block, [worth]], by_size=by_size)


def planted(link: Link, deviation: float, seed: int = 0) -> IndexedEstimator:
    return IndexedEstimator(SIZED, tuple(sized_index(seed + i, deviation) for i in range(link.indices)), link)


def without_deviations(estimator: IndexedEstimator) -> IndexedEstimator:
    return replace(estimator, indices=tuple(replace(own, by_size=()) for own in estimator.indices))


def drawn(n: int, seed: int) -> np.ndarray:
    return SIZED.decisions.draw(n, np.random.default_rng(seed))


def networks(n: int, seed: int) -> list[dn.Architecture]:
    return SIZED.architectures(drawn(n, seed))


def at_size(network: dn.Architecture, i: int) -> dn.Architecture:
    return SIZED.architecture([*network.stages, (i,)])


UNSEEN = drawn(200, seed=99)


def error(found: IndexedEstimator, truth: IndexedEstimator) -> float:
    return float(np.abs(found.predict_rows(UNSEEN) - truth.predict_rows(UNSEEN)).mean())


# -- fits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [STRAIGHT, bent()])
def test_planted_deviations_are_found_from_networks(link: Link) -> None:
    truth, rows = planted(link, deviation=0.5), drawn(300, seed=1)
    y = truth.predict_rows(rows)
    y = y + np.random.default_rng(0).normal(scale=0.05 * y.std(), size=300)
    found = fit_indexed(SIZED, SIZED.architectures(rows), y)
    without = fit_indexed(SIZED, SIZED.architectures(rows), y, by_size=False)
    assert (found.provenance["by_size"], without.provenance["by_size"]) == (True, False)
    assert error(found, truth) < 0.5 * min(error(without, truth), error(without_deviations(truth), truth))
    for own in found.indices:
        for s, stage in enumerate(SIZED.stages):  # they sum to zero over the sizes, and over the options of a block
            at = np.array([deviation.block[s] for deviation in own.by_size])
            assert np.abs(at.sum(axis=0)).max() < 1e-9 and np.abs(at.sum(axis=2)).max() < 1e-9
            assert np.abs(at - at[:, :1]).max() < 1e-9 and at.shape[1] == stage.max_depth  # the same for all blocks


@pytest.mark.parametrize("link", [STRAIGHT, bent(), both_needed()])
@pytest.mark.parametrize("seed", range(3))
def test_where_there_are_none_none_are_found(link: Link, seed: int) -> None:
    rows = drawn(200, seed)
    y = planted(link, deviation=0.0, seed=seed).predict_rows(rows)
    y = y + np.random.default_rng(seed).normal(scale=0.1 * y.std(), size=200)
    found = fit_indexed(SIZED, SIZED.architectures(rows), y)
    assert found.provenance["by_size"] is False
    assert all(own.by_size == () for own in found.indices)


@dataclass
class Images:
    """Right with log odds of the network's worth and the image's own easiness."""

    truth: IndexedEstimator
    easiness: np.ndarray
    rng: np.random.Generator

    @property
    def images(self) -> int:
        return len(self.easiness)

    def __call__(self, paths: np.ndarray) -> Scores:
        odds = self.truth.predict_rows(np.broadcast_to(paths, (self.images, paths.shape[1]))) + self.easiness
        return Scores(self.rng.random(self.images) < 1 / (1 + np.exp(-odds)), np.zeros(self.images, dtype=np.float32))

    def accuracies(self, rows: np.ndarray, estimator: IndexedEstimator) -> np.ndarray:
        return (1 / (1 + np.exp(-estimator.predict_rows(rows)[:, None] - self.easiness))).mean(axis=1)


def passes(deviation: float) -> tuple[Images, list[Pass]]:
    rng = np.random.default_rng(0)
    images = Images(planted(Link(0.0, np.array([0.5])), deviation), rng.normal(size=600), rng)
    samples = Samples(SIZED, images)
    return images, [samples.get("image", i) for i in range(16)]


def test_planted_deviations_are_found_from_images() -> None:
    images, taken = passes(deviation=1.0)
    found, without = fit_indexed_samples(SIZED, taken), fit_indexed_samples(SIZED, taken, by_size=False)
    assert (found.provenance["by_size"], without.provenance["by_size"]) == (True, False)
    measured = images.accuracies(UNSEEN, images.truth)
    errors, errors_without = (np.abs(fit.predict_rows(UNSEEN) - measured) for fit in (found, without))
    assert errors.mean() < 0.6 * errors_without.mean()
    stated = np.array([found.predict_se(network) for network in SIZED.architectures(UNSEEN[:50])])
    assert np.mean(errors[:50] < 1.645 * stated) > 0.75  # of 90 %


def test_images_that_say_nothing_of_sizes_give_no_deviations() -> None:
    _, taken = passes(deviation=0.0)
    found = fit_indexed_samples(SIZED, taken)
    assert found.provenance["by_size"] is False and found.indices[0].by_size == ()


@pytest.mark.parametrize("indices", [1, 2])
def test_deviations_that_are_asked_for_vanish_where_nothing_speaks_for_them(indices: int) -> None:
    """One variance for every kind of effect is found from the networks, and is next to nothing for these kinds."""
    truth, rows = planted(bent() if indices == 1 else both_needed(), deviation=0.0, seed=1), drawn(600, seed=1)
    y = truth.predict_rows(rows)
    y = y + np.random.default_rng(0).normal(scale=0.05 * y.std(), size=600)
    asked, without = (
        fit_indexed(SIZED, SIZED.architectures(rows), y, indices=indices, by_size=b) for b in (True, False)
    )
    assert error(asked, truth) < 1.2 * error(without, truth)
    assert error(without_deviations(asked), asked) < 0.03 * y.std()


def test_deviations_between_sizes_need_several() -> None:
    nets = SPACE.architectures(SPACE.decisions.draw(20, np.random.default_rng(0)))
    with pytest.raises(InputError, match="one input size"):
        fit_indexed(SPACE, nets, np.linspace(0, 1, 20), by_size=True)


def test_weights_and_contributions_are_each_other() -> None:
    terms, rng = Terms(SIZED, by_size=True), np.random.default_rng(0)
    w = rng.normal(size=terms.size)
    made = terms.index(0.0, terms.contributed @ w)
    assert np.allclose(terms.contributed.T @ terms.contributions(made), w)
    estimator = IndexedEstimator(SIZED, (made,), Link(0.0, np.ones(1)))
    assert np.allclose(terms.design(UNSEEN) @ w, estimator.totals(UNSEEN)[:, 0])


def test_a_space_with_nothing_but_a_size_to_decide_has_nothing_that_could_deviate() -> None:
    stage = replace(SPACE.stages[0], depths=(1,), configs=SPACE.stages[0].configs[:1])
    alone = replace(SIZED, stages=(stage,))
    assert Terms(alone, by_size=True).size == Terms(alone, by_size=False).size == 2


# -- use ------------------------------------------------------------------------------------------


def test_many_networks_are_predicted_as_one_is_and_as_the_search_scores() -> None:
    truth = planted(both_needed(), deviation=0.5)
    objective, rows = truth.objective(), UNSEEN[:40]
    predicted = [truth.predict(network) for network in SIZED.architectures(rows)]
    assert np.allclose(truth.predict_rows(rows), predicted, atol=1e-12)
    assert [objective.score(network) for network in SIZED.architectures(rows)] == predicted


def test_refits_deviate_too() -> None:
    rng = np.random.default_rng(0)
    truth = planted(STRAIGHT, deviation=0.5)
    others = [sized_index(seed, deviation=0.5) for seed in range(1, 9)]
    refits = tuple(Refit((other,), rng.normal(scale=0.01, size=STRAIGHT.parameters)) for other in others)
    found = replace(truth, refits=refits)
    # behind a straight line the slopes say all: a refit predicts what it says itself
    moved = [
        replace(truth, indices=refit.indices).predict_rows(UNSEEN)
        + STRAIGHT.gradient(truth.totals(UNSEEN)) @ refit.link_step
        for refit in refits
    ]
    assert np.allclose(found.draws(UNSEEN), moved)
    network = SIZED.architectures(UNSEEN[:1])[0]
    assert found.predict_se(network) == pytest.approx(np.std([row[0] for row in moved], ddof=1))


def test_what_a_decision_is_worth_is_said_at_the_size_of_the_network() -> None:
    truth = planted(bent(), deviation=0.8)
    network = networks(1, seed=3)[0]
    (own,) = truth.indices
    for i in range(3):
        here = at_size(network, i)
        slope = truth.link.slopes(np.array([truth.indices_of(here)]))[0, 0]
        depth, block = truth.contributions_at(here)
        assert block[1][2][3] == pytest.approx(slope * (own.block[1][2][3] + own.by_size[i].block[1][2][3]))
        assert depth[0][1] == pytest.approx(slope * (own.depth[0][1] + own.by_size[i].depth[0][1]))
        for change in single_changes(truth, here):
            assert change.accuracy == pytest.approx(truth.predict(change.architecture) - truth.predict(here))
    deeper = next(c for c in comparisons_of(SIZED.decisions) if c.key == ("depth", "1 → 3", "stage 1"))
    worths = [worth_at(truth, deeper, at_size(network, i)) for i in range(3)]
    assert len({round(worth.accuracy, 6) for worth in worths if worth}) == 3


def test_parts_of_a_difference_add_up_across_sizes() -> None:
    truth = planted(bent(), deviation=0.8)
    before, after = SIZED.smallest(), SIZED.heaviest()
    found = compare_networks(truth, after, before)
    assert sum(part.accuracy.accuracy for part in found.parts) == pytest.approx(
        truth.predict(after) - truth.predict(before)
    )
    assert [part.what for part in found.parts].count("input size 16 → 28") == 1


def test_averages_are_over_all_sizes() -> None:
    """Deviations sum to zero over the sizes: behind a straight line they change no average but by who was drawn."""
    truth = planted(STRAIGHT, deviation=0.5)
    with_them, without = average_worth(truth).values, average_worth(without_deviations(truth)).values
    where = SIZED.decisions.slices[SIZED.decisions.column(0, 0)]
    apart, spread = (with_them - without)[where], without[where]
    # a mean over 200 networks, whose sizes are -1, 0, 1 times a deviation: its sd is 0.058 of that
    most = 0.02 * max(abs(value) for value in truth.indices[0].by_size[2].block[0][0])
    assert np.ptp(apart) < 2 * 4 * 0.058 * most and np.ptp(spread) > 0


# -- refinement -----------------------------------------------------------------------------------


def test_what_is_measured_at_one_size_is_learned_for_it() -> None:
    start = planted(STRAIGHT, deviation=0.5)
    other = sized_index(7, deviation=0.5)  # where the search goes, sizes deviate in other ways
    truth = replace(start, indices=(replace(start.indices[0], by_size=other.by_size),))
    measured = [MeasuredNetwork(network, truth.predict(network), 0.002) for network in networks(120, seed=5)]
    refined = refine(start, measured)
    assert all(len(refit.indices[0].by_size) == 3 for refit in refined.refits)
    assert error(refined, truth) < 0.3 * error(start, truth)
    # an estimator that knows of no deviations is not given any, and so does not learn it
    plain = refine(without_deviations(start), measured)
    assert plain.indices[0].by_size == () and all(refit.indices[0].by_size == () for refit in plain.refits)
    assert error(plain, truth) > 0.3 * error(start, truth)


def test_a_refined_estimator_is_searched_exactly() -> None:
    start = planted(bent(), deviation=0.5)
    refined = refine(start, [MeasuredNetwork(n, start.predict(n) - 0.01, 0.002) for n in networks(8, seed=5)])
    rng = np.random.default_rng(0)
    blocks = [[rng.uniform(0.1, 1, size=(s.max_depth, len(s.configs))) for s in SIZED.stages] for _ in SIZED.sizes]
    table = dn.LatencyTable.from_arrays(SIZED, [0.3, 0.4, 0.5], blocks)
    front = dn.frontier(SIZED, refined, table)
    assert all(refined.predict(point.architecture) == point.accuracy for point in front)
    for network in networks(300, seed=4):
        best = front.best(table.predict(network))
        assert best is not None and refined.predict(network) <= best.accuracy


# -- files ----------------------------------------------------------------------------------------


def test_a_file_comes_back_the_same(tmp_path: Path) -> None:
    start = planted(both_needed(), deviation=0.5)
    refined = refine(start, [MeasuredNetwork(n, start.predict(n) - 0.01, 0.002) for n in networks(8, seed=5)])
    refined.save(tmp_path / "estimator.json")
    again = IndexedEstimator.load(tmp_path / "estimator.json")
    assert again.indices == refined.indices
    for network in networks(20, seed=2):
        assert again.predict(network) == refined.predict(network)
        assert again.predict_se(network) == refined.predict_se(network)


def test_a_file_without_deviations_does_not_mention_them(tmp_path: Path) -> None:
    planted(bent(), deviation=0.0).save(tmp_path / "estimator.json")
    assert "by_size" not in (tmp_path / "estimator.json").read_text()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda by_size: by_size.pop(), "2 input sizes, space `sized` has 3"),
        (lambda by_size: by_size[1]["depth"].pop(), "depth of index 1 at input size 20"),
        (lambda by_size: by_size[2]["block"][0][0].append(0.0), "block of index 1 at input size 28"),
    ],
)
def test_a_damaged_file_is_refused(damage, message: str, tmp_path: Path) -> None:
    path = tmp_path / "estimator.json"
    planted(bent(), deviation=0.5).save(path)
    document = json.loads(path.read_text())
    damage(document["indices"][0]["by_size"])
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        IndexedEstimator.load(path)


def test_a_space_with_one_size_has_no_deviations_between_sizes() -> None:
    plain = index(0)
    with pytest.raises(InputError, match="3 input sizes, space `fashion` has 1"):
        Index.from_arrays(SPACE, 0.0, plain.depth, plain.block, by_size=sized_index(0, 0.5).by_size)
