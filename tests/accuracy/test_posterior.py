"""The posterior of choices against enumeration, and the derivatives that it is fitted with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tiny_spaces import SMALL

from deploynas.accuracy.posterior import Posterior, PosteriorSettings, fit_posterior, kl_to_uniform
from deploynas.accuracy.supernet_likelihood import SupernetLikelihood
from deploynas.errors import InputError
from deploynas.space import Decisions, Space
from deploynas.space.decisions import Choice, Group, Option
from deploynas.space.softmax import log_softmax, through_softmax
from deploynas.supernet.cell_network import CellSupernet
from deploynas.supernet.network import Supernet


def columns(*sizes: int) -> Decisions:
    """Choices that always count, of so many options."""
    choices = tuple(Choice(f"c{i}", tuple(Option(str(o)) for o in range(size))) for i, size in enumerate(sizes))
    return Decisions((Group("all", (len(sizes),), choices),))


class Table:
    """log p(D|A) of every row, planted; by an option's weight it changes as a product of such weights does."""

    steps_per_epoch = 1500

    def __init__(self, decisions: Decisions, values: np.ndarray) -> None:
        self.decisions, self.values = decisions, values

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        by_option = np.zeros(len(self.decisions))
        for column, where in enumerate(self.decisions.slices):
            for option in range(where.stop - where.start):
                other = row.copy()
                other[column] = option
                by_option[where.start + option] = self.values[tuple(other)]
        return float(self.values[tuple(row)]), by_option

    def posterior(self) -> np.ndarray:
        """Of all rows, by enumeration; the prior is uniform."""
        odds = np.exp(self.values - self.values.max())
        return odds / odds.sum()

    def divergence(self, posterior: Posterior) -> float:
        """KL from a factorised distribution to the true one, by enumeration."""
        q = product(self.decisions, posterior.p)
        return float((q * (np.log(q) - np.log(self.posterior()))).sum())


def product(decisions: Decisions, p: np.ndarray) -> np.ndarray:
    found = np.ones(decisions.sizes)
    for column, where in enumerate(decisions.slices):
        shape = [1] * decisions.columns
        shape[column] = -1
        found = found * p[where].reshape(shape)
    return found


def marginals(decisions: Decisions, joint: np.ndarray) -> np.ndarray:
    every = range(decisions.columns)
    return np.concatenate([joint.sum(tuple(other for other in every if other != column)) for column in every])


def mean_field(table: Table) -> Posterior:
    """The best factorised distribution: log q_i = E[log p(D|A)] over the other decisions, until nothing moves."""
    decisions, alpha = table.decisions, np.zeros(len(table.decisions))
    for _ in range(500):
        for column, where in enumerate(decisions.slices):
            p = Posterior(log_softmax(decisions, alpha)).p.copy()
            p[where] = 1.0
            others = tuple(other for other in range(decisions.columns) if other != column)
            alpha[where] = (product(decisions, p) * table.values).sum(others)
    return Posterior(log_softmax(decisions, alpha))


def test_where_decisions_add_up_it_is_the_enumerated_posterior() -> None:
    decisions, rng = columns(3, 2, 4), np.random.default_rng(0)
    worth = [rng.normal(0, 1, size) for size in decisions.sizes[1:]]
    values = sum(np.ix_(*worth))[None]  # the first column is the depth, of which there is one
    table = Table(decisions, np.asarray(values))
    found = fit_posterior(decisions, table, PosteriorSettings(epochs=2))
    assert found.p == pytest.approx(marginals(decisions, table.posterior()), abs=1e-4)
    assert table.divergence(found) == pytest.approx(0.0, abs=1e-6)


def test_where_they_do_not_it_is_nearly_the_best_that_factorises() -> None:
    decisions, rng = columns(3, 2, 3), np.random.default_rng(1)
    table = Table(decisions, rng.normal(0, 1, decisions.sizes))
    found, best = fit_posterior(decisions, table, PosteriorSettings(epochs=2)), mean_field(table)
    assert table.divergence(best) <= table.divergence(found) + 1e-9
    assert table.divergence(found) < table.divergence(best) + 0.02
    assert table.divergence(best) < table.divergence(Posterior.uniform(decisions))


def test_through_the_noise_evidence_is_weighed_two_thirds() -> None:
    """Two even options: the derivative of p is 1/4, and E[s'(L)] = 1/6 for a logistic L, the integral of s'^2."""
    decisions, rng = columns(2), np.random.default_rng(0)
    evidence, where = np.array([0.0, 1.0, 0.0]), decisions.slices[1]
    plain = through_softmax(decisions, np.zeros(3), evidence)[where.start]
    noisy = [through_softmax(decisions, rng.gumbel(size=3), evidence)[where.start] for _ in range(20_000)]
    assert plain == pytest.approx(1 / 4, abs=1e-12)
    assert np.mean(noisy) == pytest.approx(1 / 6, abs=4 * np.std(noisy) / 20_000**0.5)


def test_the_divergence_from_uniform_is_its_sum_over_all_rows_and_its_derivative_a_difference() -> None:
    decisions, rng = columns(3, 2, 4), np.random.default_rng(2)
    alpha = rng.normal(0, 1, len(decisions))
    value, gradient = kl_to_uniform(decisions, alpha)
    q = product(decisions, np.exp(log_softmax(decisions, alpha)))
    assert value == pytest.approx(float((q * np.log(q * q.size)).sum()))
    for i, step in itertools.product(range(len(alpha)), [1e-6]):
        there, back = (kl_to_uniform(decisions, alpha + sign * step * np.eye(len(alpha))[i])[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((there - back) / (2 * step), abs=1e-7)
    assert kl_to_uniform(decisions, np.full(len(decisions), 0.7))[0] == pytest.approx(0.0, abs=1e-12)


def test_evidence_ranks_networks_of_different_depths_by_their_likelihood(tiny: Space) -> None:
    """Log-likelihoods that add up over decisions that count; the posterior of rows is then that of networks too."""
    decisions, rng = tiny.decisions, np.random.default_rng(3)
    worth = rng.normal(0, 1, len(decisions))
    prior = Posterior.uniform(decisions)
    posterior = Posterior(log_softmax(decisions, worth))
    rows = tiny.rows([tiny.architecture(choices) for choices in decisions.enumerate()])
    assert np.exp(decisions.active(rows) @ posterior.log_p).sum() == pytest.approx(1.0)  # a distribution of networks
    apart = decisions.active(rows) @ (posterior.log_p - prior.log_p)
    assert posterior.log_evidence(decisions, rows) == pytest.approx(apart)
    assert prior.log_evidence(decisions, rows) == pytest.approx(np.zeros(len(rows)))


@pytest.fixture(scope="module")
def likelihood(tmp_path_factory: pytest.TempPathFactory) -> SupernetLikelihood:
    path = tmp_path_factory.mktemp("space") / "small.yaml"
    path.write_text(SMALL)
    space = Space.load(path)
    torch.manual_seed(0)
    images, labels = torch.randn(12, 1, 28, 28), torch.arange(12) % 10
    supernet = Supernet(space).double()
    return SupernetLikelihood(supernet, 12, lambda at: [(images[at].double(), labels[at])], batch=4)


def test_the_likelihood_is_the_networks_own_and_its_derivative_a_difference(likelihood: SupernetLikelihood) -> None:
    space, decisions = likelihood.supernet.space, likelihood.supernet.space.decisions
    network = space.sample(np.random.default_rng(0))
    row = space.rows([network])[0].astype(np.int64)
    value, by_option = likelihood.pull(row, 1)
    ((images, labels),) = likelihood.batch_of(likelihood._positions(1))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(likelihood.supernet(images, network), labels)
    assert value == pytest.approx(-12 * float(loss), rel=1e-5)
    counted = np.repeat(decisions.counts(row[None])[0], decisions.sizes)
    depth = int(decisions.starts[len(decisions.groups)])
    assert (by_option[depth:][~counted[depth:]] == 0).all() and (by_option[counted] != 0).any()


def test_an_epoch_is_every_image_once(likelihood: SupernetLikelihood) -> None:
    assert likelihood.steps_per_epoch == 3
    for epoch in range(2):
        seen = [likelihood._positions(3 * epoch + step) for step in range(3)]
        assert sorted(np.concatenate(seen)) == list(range(12))


def test_cells_have_no_posterior_yet() -> None:
    with pytest.raises(InputError, match="not made of stages"):
        SupernetLikelihood(CellSupernet(Space.load("fashion-cell")), 12, lambda at: [])
