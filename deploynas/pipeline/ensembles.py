"""`search --ensemble`: networks that answer together within one latency budget (NESBS, Shu et al. 2022, chapter 5).

Sets of networks are proposed, every network is asked once for what it says about the validation images, and the set
with the least loss of its averaged answer is taken. Four ways to propose:

`mc`       draws from the posterior of the supernet's choices, given the joint budget (`search.budgeted_draws`)
`svgd-rd`  particles that the posterior attracts and each other's nearness repels, then the networks next to them within
           the joint budget (`search.svgd`, `search.nearest_networks`)
`exact`    a list of networks: those of `mc`, those that the posterior says most for at rising latencies, an
           estimator's; of it the best pair or triple
`random`   draws with all options equally likely, given the joint budget: what the others have to beat

Beside the set, always: the best single network that was found within the same total latency, chosen by the same loss on
the same images from at least as many networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from deploynas.accuracy.ensemble_scores import calibration_error, disagreement, error, log_loss, paired_difference
from deploynas.accuracy.posterior import Posterior
from deploynas.errors import GateError, InputError
from deploynas.progress import OnProgress, silent
from deploynas.search.best_set import best_set, loss
from deploynas.search.budgeted_draws import BudgetedDraws
from deploynas.search.ensemble_record import EnsembleRecord, EnsembleScores, JudgedOn, SingleRecord, SingleScores
from deploynas.search.joint_budget import JointBudget, require_members
from deploynas.search.nearest_networks import distinct, most_likely, nearest_networks
from deploynas.search.svgd import SvgdSettings, particles, relaxed_score
from deploynas.space import Architecture, Space

Sampling = Literal["mc", "svgd-rd", "exact", "random"]
SAMPLINGS: tuple[Sampling, ...] = ("mc", "svgd-rd", "exact", "random")
DELTAS = (-1.0, 0.0, 1.0)  # in turn, where none is given; the thesis looks between -2 and 1
STEPS = 10  # latencies of the most likely networks in the list of `exact`

Ensemble = tuple[Architecture, ...]


class Predicts(Protocol):
    """Knows what networks say about images."""

    @property
    def judged_on(self) -> JudgedOn: ...

    def of(self, architecture: Architecture, images: JudgedOn = "validation") -> np.ndarray:
        """(images, classes): probabilities."""
        ...

    def labels(self, images: JudgedOn = "validation") -> np.ndarray: ...


@dataclass(frozen=True)
class EnsembleWishes:
    members: int
    sampling: Sampling = "mc"
    draws: int = 20
    delta: float | None = None  # of `svgd-rd`; None: DELTAS in turn
    seed: int = 0

    def __post_init__(self) -> None:
        require_members(self.members)
        if self.sampling not in SAMPLINGS:
            raise InputError(f"no sampling `{self.sampling}`", hint=f"one of {', '.join(SAMPLINGS)}")
        if self.sampling == "exact" and self.members > 3:
            raise InputError(
                f"`--sampling exact` is for two or three networks, got {self.members}: there are too many larger sets",
                hint="`--sampling mc` or `--sampling svgd-rd`",
            )
        if self.delta is not None and self.sampling != "svgd-rd":
            raise InputError("`--delta` is for `--sampling svgd-rd`")


@dataclass(frozen=True)
class Proposals:
    """Sets within the budget, or the networks that any set may be of; and how many draws were left out."""

    sets: tuple[Ensemble, ...] = ()
    networks: Ensemble = ()
    deltas: tuple[float, ...] = ()  # of every set, where it has one
    repeated: int = 0

    @property
    def asked(self) -> Ensemble:
        """All networks, each once."""
        return tuple(dict.fromkeys([*self.networks, *(network for one in self.sets for network in one)]))


@dataclass(frozen=True)
class Chosen:
    members: Ensemble
    delta: float | None
    sets: int  # that were compared


class EnsembleSearch:
    """`also`: further networks that may be members of an `exact` set, or the single network beside it."""

    def __init__(
        self, posterior: Posterior, predictions: Predicts, budget: JointBudget, wishes: EnsembleWishes, space: Space,
        also: Sequence[Architecture] = (),
    ) -> None:  # fmt: skip
        self.space, self.posterior, self.predictions = space, posterior, predictions
        self.budget, self.wishes = budget, wishes
        self.also = [network for network in also if budget.allows([network])]
        self._right = dict[Architecture, np.ndarray]()

    def search(self, on_progress: OnProgress = silent) -> tuple[Ensemble, EnsembleRecord]:
        """The members, best first, and what is known about them."""
        self.budget.require_feasible(self.space, self.wishes.members)
        proposals = self.propose()
        rivals = self._rivals(proposals)
        self._ask(dict.fromkeys([*proposals.asked, *rivals]), on_progress)
        chosen = self._best(proposals)
        single = min(rivals, key=lambda network: loss(self._right[network][None]))
        members = tuple(sorted(chosen.members, key=lambda network: loss(self._right[network][None])))
        return members, self._record(members, chosen, proposals, single, len(rivals))

    def propose(self) -> Proposals:
        rng = np.random.default_rng((self.wishes.seed, 13))
        match self.wishes.sampling:
            case "mc" | "random":
                return self._drawn(rng)
            case "svgd-rd":
                return self._repelled(rng)
            case "exact":
                return Proposals(networks=tuple(dict.fromkeys([*self._drawn(rng).asked, *self._likely(), *self.also])))
            case other:
                raise AssertionError(other)

    def _drawn(self, rng: np.random.Generator) -> Proposals:
        wanted = self.wishes.draws
        sets = self._draws().ensembles(self.wishes.members, wanted, rng)
        return Proposals(tuple(sets), repeated=wanted - len(sets))

    def _draws(self) -> BudgetedDraws:
        return BudgetedDraws(self.space, self.posterior.p, self.budget)

    def _repelled(self, rng: np.random.Generator) -> Proposals:
        decisions = self.space.decisions
        score, sets, deltas = relaxed_score(decisions, self.posterior.p), list[Ensemble](), list[float]()
        for number in range(self.wishes.draws):
            delta = DELTAS[number % len(DELTAS)] if self.wishes.delta is None else self.wishes.delta
            start = rng.standard_normal((self.wishes.members, len(decisions)))
            found = nearest_networks(self.space, particles(score, start, SvgdSettings(delta)), self.budget)
            if found and distinct(found) and self.budget.allows(found):
                sets.append(found)
                deltas.append(delta)
        return Proposals(tuple(sets), deltas=tuple(deltas), repeated=self.wishes.draws - len(sets))

    def _likely(self) -> Ensemble:
        """The network that the posterior says most for, within each of rising latencies."""
        found = most_likely(self.space, self.posterior.evidence(self.space.decisions), self.budget)
        return tuple(point.architecture for point in found.thin(STEPS))

    def _rivals(self, proposals: Proposals) -> list[Architecture]:
        """Single networks within the budget: all that were proposed, as many draws again, and the most likely."""
        rng = np.random.default_rng((self.wishes.seed, 17))
        drawn = self._draws().ensembles(1, self.wishes.draws * self.wishes.members, rng)
        return list(dict.fromkeys([*proposals.asked, *(one for (one,) in drawn), *self._likely(), *self.also]))

    def _ask(self, networks: dict[Architecture, None], on_progress: OnProgress) -> None:
        labels = self.predictions.labels()
        for number, network in enumerate(networks):
            self._right[network] = self.predictions.of(network)[np.arange(len(labels)), labels].astype(float)
            on_progress((number + 1) / len(networks), f"network {number + 1} of {len(networks)}")

    def _best(self, proposals: Proposals) -> Chosen:
        if proposals.networks:
            networks = proposals.networks
            right = np.stack([self._right[network] for network in networks])
            latencies = [self.budget.latency_ms([network]) for network in networks]
            found, tried = best_set(right, latencies, self.wishes.members, self.budget.running, self.budget.budget_ms)
            if found is None:
                raise self._nothing()
            return Chosen(tuple(networks[i] for i in found), None, tried)
        if not proposals.sets:
            raise self._nothing()
        losses = [loss(np.stack([self._right[network] for network in one])) for one in proposals.sets]
        best = int(np.argmin(losses))
        delta = proposals.deltas[best] if proposals.deltas else None
        return Chosen(proposals.sets[best], delta, len(proposals.sets))

    def _nothing(self) -> GateError:
        return GateError(
            f"no set of {self.wishes.members} different networks within {self.budget.budget_ms:.4g} ms was found",
            hint="a larger budget, more --draws, or another --sampling",
        )

    def _record(
        self, members: Ensemble, chosen: Chosen, proposals: Proposals, single: Architecture, rivals: int
    ) -> EnsembleRecord:
        predictions, judged_on = self.predictions, self.predictions.judged_on
        both = list[JudgedOn](dict.fromkeys(["validation", judged_on]))
        together = np.stack([predictions.of(network, judged_on) for network in members]).mean(0)
        difference, se = paired_difference(together, predictions.of(single, judged_on), predictions.labels(judged_on))
        return EnsembleRecord(
            running=self.budget.running,
            budget_ms=self.budget.budget_ms,
            latency_ms=self.budget.latency_ms(members),
            sampling=self.wishes.sampling,
            delta=chosen.delta,
            sets=chosen.sets,
            repeated=proposals.repeated,
            networks=len(proposals.asked),
            sharpness=self.posterior.sharpness(self.space.decisions) if self.posterior.steps else None,
            posterior_steps=self.posterior.steps,
            scores={images: self._scores(members, images) for images in both},
            single=SingleRecord(
                architecture=str(single),
                choices=[list(choice) for choice in single.choices],
                latency_ms=self.budget.latency_ms([single]),
                candidates=rivals,
                scores={images: self._single_scores(single, images) for images in both},
            ),
            judged_on=judged_on,
            error_difference=difference,
            error_difference_se=se,
        )

    def _scores(self, members: Ensemble, images: JudgedOn) -> EnsembleScores:
        each, labels = np.stack([self.predictions.of(one, images) for one in members]), self.predictions.labels(images)
        together = each.mean(0)
        return EnsembleScores(
            images=len(labels),
            mean_member_error=float(np.mean([error(one, labels) for one in each])),
            member_errors=[error(one, labels) for one in each],
            disagreement=disagreement(each),
            error=error(together, labels),
            log_loss=log_loss(together, labels),
            calibration_error=calibration_error(together, labels),
        )

    def _single_scores(self, single: Architecture, images: JudgedOn) -> SingleScores:
        own, labels = self.predictions.of(single, images), self.predictions.labels(images)
        return SingleScores(
            images=len(labels),
            error=error(own, labels),
            log_loss=log_loss(own, labels),
            calibration_error=calibration_error(own, labels),
        )
