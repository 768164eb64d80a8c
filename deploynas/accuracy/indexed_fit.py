"""Indexed estimators learned from whole networks with their accuracies, or from images that each took their own paths.

Three forms compete: the shrunk additive one (a straight line as link), one index and two. Unless told which, a fit
takes a richer form only where it predicts held-out networks (or images) better by more than two standard errors of the
difference. Where the input size is open, each form competes in two ways: with contributions that are the same at every
size, and with some that deviate. Standard errors come from refits on resampled networks or images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np

from deploynas.accuracy.index_model import (
    Bernoulli,
    Fitted,
    Gaussian,
    Likelihood,
    Parts,
    Shape,
    fit_additive,
    fit_linked,
    refined,
)
from deploynas.accuracy.index_terms import Terms
from deploynas.accuracy.indexed import IndexedEstimator, Indices, Refit
from deploynas.accuracy.learned import checked_accuracies
from deploynas.accuracy.samples import Pass
from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.space.link import Link

Form = Literal["additive", "one index", "two indices"]
FORMS: tuple[Form, ...] = ("additive", "one index", "two indices")
UNITS = 8  # of the link
REFITS = 32
FOLDS = 3  # of networks
HELD_OUT_IMAGES = 0.25
FIRST_ANSWERS = 20_000  # that a fit begins with
EASINESS_GROUPS = 16  # of images, in the link


def fit_indexed(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    indices: Literal[1, 2] | None = None,
    by_size: bool | None = None,
    seed: int = 0,
) -> IndexedEstimator:
    """Learn from networks and their accuracies (0..1); `indices=None` picks the form by held-out networks.

    `by_size` says whether contributions may deviate between input sizes, where these are open; None: as is observed.
    """
    y = checked_accuracies(space, architectures, accuracies)
    rows = space.rows(architectures)

    def observe(basis: _Basis) -> _Networks:
        return _Networks(basis, basis.design(rows), y)

    candidates = _candidates(_observed(space, observe, by_size), indices)
    form, data = candidates[0]
    if len(candidates) > 1:
        folds = np.random.default_rng(seed).permutation(len(y)) % FOLDS
        outs = [folds == fold for fold in range(FOLDS)]
        losses = [np.concatenate([own.held_out_losses(tried, out) for out in outs]) for tried, own in candidates]
        form, data = candidates[_best(losses)]
    fitted = data.fitted(form)
    link = _link(fitted.parts, data.level + data.scale * fitted.parts.constant, data.scale)
    assert isinstance(fitted.likelihood, Gaussian)
    return IndexedEstimator(
        space,
        data.basis.indices(fitted.parts.w, data.centre),
        link,
        data.basis.refits(fitted, data, data.scale, seed),
        lack_of_fit=data.scale * fitted.likelihood.variance**0.5,
        provenance={**data.basis.about(form), "networks": len(y)},
    )


def fit_indexed_samples(
    space: Space,
    passes: Sequence[Pass],
    *,
    indices: Literal[1, 2] | None = None,
    by_size: bool | None = None,
    seed: int = 0,
) -> IndexedEstimator:
    """Learn from passes over the same images, in which every image took a path of its own."""
    if not passes:
        raise InputError("a fit needs at least one pass")
    images = len(passes[0].scores.right)
    paths = np.concatenate([np.broadcast_to(p.paths, (images, p.paths.shape[1])) for p in passes])
    right = np.concatenate([p.scores.right for p in passes]).astype(float)
    image = np.tile(np.arange(images), len(passes))

    def observe(basis: _Basis) -> _Samples:
        return _Samples.of(basis, basis.design(paths), right, image)

    candidates = _candidates(_observed(space, observe, by_size), indices)
    form, data = candidates[0]
    if len(candidates) > 1:
        out = np.random.default_rng(seed).permutation(images) < HELD_OUT_IMAGES * images
        tried = [own.part(~out).fitted(one) for one, own in candidates]
        best = _best([own.part(out).losses(first) for (_, own), first in zip(candidates, tried, strict=True)])
        (form, data), first = candidates[best], tried[best]
    else:
        first = data.first_fit(form)
    fitted = data.refined(first)
    return IndexedEstimator(
        space,
        data.basis.indices(fitted.parts.w, data.centre),
        data.link(fitted),
        data.basis.refits(fitted, data, 1.0, seed),
        provenance={**data.basis.about(form), "images": images, "passes": len(passes)},
    )


class _Basis:
    """Paths as rows of a regression: its terms, and what is expected of their weights."""

    def __init__(self, space: Space, by_size: bool = False) -> None:
        self.space, self.terms = space, Terms(space, by_size)
        self.kinds = np.stack([effect @ effect.T for effect in self.terms.effects])

    def about(self, form: Form) -> dict[str, object]:
        """What was fitted, for whoever reads the file."""
        return {"form": form, "by_size": self.terms.by_size} if self.space.sizes else {"form": form}

    def design(self, paths: np.ndarray) -> np.ndarray:
        return self.terms.design(paths)

    def starts(self, w: np.ndarray, indices: int) -> list[np.ndarray]:
        """Ways to share the weights of an additive fit: what a kind of effect explains, and the rest."""
        if indices == 1:
            return [w[None]]
        found = []
        for effect in self.terms.effects:
            if 1 < effect.shape[1] < len(w) // 2:
                explained = effect @ np.linalg.lstsq(effect, w, rcond=1e-9)[0]
                found.append((float(explained @ explained), np.stack([explained, w - explained])))
        shares = [share for size, share in sorted(found, key=lambda f: -f[0]) if size < 0.9 * float(w @ w)]
        noise = np.random.default_rng(0).normal(size=(2, len(w))) * np.abs(w)
        return [np.stack([w, w]) / 2 + 0.5 * noise, *shares[:3]]

    def indices(self, w: np.ndarray, centre: np.ndarray) -> Indices:
        """Weights of the regression as contributions."""
        return tuple(self.terms.index(-float(centre @ row), self.terms.contributed @ row) for row in w)

    def refits(self, fitted: Fitted, data: Observed, scale: float, seed: int) -> tuple[Refit, ...]:
        """With random weights for all networks (or images), and for what was expected of the parameters.

        Weights are exponential (the Bayesian bootstrap), so that no decision is ever left without observations. One
        Gauss-Newton step from the fit itself is as good as a whole refit for small changes. `scale` is how many units
        of the link's constant a unit of t is.
        """
        rng = np.random.default_rng((seed, 1))
        weights = rng.exponential(size=(REFITS, int(data.cluster.max()) + 1)) - 1
        moved = rng.normal(size=(REFITS, fitted.shape.size)) @ np.linalg.cholesky(fitted.expected.precision).T
        for start in range(0, len(data.design), 20_000):
            rows = slice(start, start + 20_000)
            t, _, jacobian = fitted.parts.jacobian(data.design[rows])
            pull, _ = fitted.likelihood.pull(t, rows)
            moved += (weights[:, data.cluster[rows]] * pull).astype(jacobian.dtype) @ jacobian
        steps = np.linalg.solve(fitted.curvature, moved.T).T
        found = []
        for step in steps:
            w = fitted.parts.w + step[: fitted.parts.w.size].reshape(fitted.parts.w.shape)
            of_link = step[fitted.parts.w.size :]
            in_order = np.concatenate([scale * of_link[-1:], of_link[:-1]])  # the link's own order: its constant first
            found.append(Refit(self.indices(w, data.centre), in_order))
        return tuple(found)


class Observed(Protocol):
    """What a form is fitted to: rows of a design, centred, and which of them are resampled together."""

    @property
    def design(self) -> np.ndarray: ...

    @property
    def centre(self) -> np.ndarray: ...

    @property
    def cluster(self) -> np.ndarray: ...

    def fitted(self, form: Form) -> Fitted: ...


Data = TypeVar("Data", bound=Observed)


def _observed(space: Space, observe: Callable[[_Basis], Data], by_size: bool | None) -> list[Data]:
    """For contributions that are the same at every input size, for some that deviate, or for both."""
    if by_size and not space.sizes:
        raise InputError(f"space `{space.name}` has one input size: no contribution can differ between several")
    ways = (False, True) if by_size is None and space.sizes else (bool(by_size),)
    return [observe(_Basis(space, way)) for way in ways]


def _candidates(observed: Sequence[Data], indices: Literal[1, 2] | None) -> list[tuple[Form, Data]]:
    """What may be fitted to which observations, the simplest first."""
    if indices not in (None, 1, 2):
        raise InputError(f"an estimator has 1 or 2 indices, got {indices!r}")
    if indices:
        return [(FORMS[indices], data) for data in observed]
    additive = observed[-1] if len(observed) > 1 and _speak_for_deviations(*observed) else observed[0]
    return [(FORMS[0], additive), *((form, data) for form in FORMS[1:] for data in observed)]


def _speak_for_deviations(plain: Observed, deviating: Observed) -> bool:
    """Whether contributions that deviate between input sizes have so much more evidence, in the additive form.

    Its logarithm has to rise by more than one for every variance that they add (Akaike). Behind a link that bends the
    evidence is not known as well, so there they are judged by what is held out, as links are.
    """
    without, found = plain.fitted(FORMS[0]), deviating.fitted(FORMS[0])
    return without.surprise - found.surprise > found.variances.size - without.variances.size


def _best(losses: Sequence[np.ndarray]) -> int:
    """The richest that predicts better than the simpler ones, by two standard errors of the difference."""
    best = 0
    for i in range(1, len(losses)):
        gain = losses[best] - losses[i]
        if gain.mean() > 2 * gain.std(ddof=1) / len(gain) ** 0.5:
            best = i
    return best


def _fit_form(form: Form, basis: _Basis, design: np.ndarray, likelihood: Likelihood) -> Fitted:
    additive = fit_additive(design, likelihood, basis.kinds)
    if form == "additive":
        return additive
    indices = FORMS.index(form)
    starts = basis.starts(additive.parts.w[0], indices)
    return fit_linked(design, additive, basis.kinds, Shape(indices, UNITS, design.shape[1]), starts)


class _Networks:
    """Whole networks, as rows of a design, and their accuracies."""

    def __init__(self, basis: _Basis, rows: np.ndarray, y: np.ndarray) -> None:
        self.basis, self.rows, self.y = basis, rows, y
        self.centre = rows.mean(axis=0)
        self.design = rows - self.centre
        self.cluster = np.arange(len(y))
        self.level, self.scale = float(y.mean()), float(y.std()) or 1.0

    def fitted(self, form: Form) -> Fitted:
        """In units of the standard deviation of the accuracies."""
        return _fit_form(form, self.basis, self.design, Gaussian((self.y - self.level) / self.scale, 0.1))

    def held_out_losses(self, form: Form, out: np.ndarray) -> np.ndarray:
        """Squared errors on the networks left out."""
        inside = _Networks(self.basis, self.rows[~out], self.y[~out])
        t = inside.fitted(form).parts.t(self.rows[out] - inside.centre)
        return (inside.level + inside.scale * t - self.y[out]) ** 2


@dataclass(frozen=True)
class _Samples:
    """Images, numbered, and the paths they took, as centred rows of a design: right (1) or wrong (0) for each."""

    basis: _Basis
    centre: np.ndarray
    design: np.ndarray
    right: np.ndarray
    cluster: np.ndarray  # the image of each row

    @classmethod
    def of(cls, basis: _Basis, rows: np.ndarray, right: np.ndarray, image: np.ndarray) -> _Samples:
        centre = rows.mean(axis=0, dtype=float)
        return cls(basis, centre, rows - centre.astype(rows.dtype), right, image)

    def part(self, images: np.ndarray) -> _Samples:
        """Of some of the images, numbered anew; around the same centre, so that a fit of one part is one of all."""
        rows = images[self.cluster]
        numbered = np.unique(self.cluster[rows], return_inverse=True)[1]
        return replace(self, design=self.design[rows], right=self.right[rows], cluster=numbered)

    @cached_property
    def visits(self) -> np.ndarray:
        return np.bincount(self.cluster)

    @cached_property
    def share(self) -> np.ndarray:
        """How often each image was answered right."""
        return np.bincount(self.cluster, weights=self.right)

    def easiness(self, right: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """Log odds of an image against those of all, its answers joined by one that is right as often as all are."""
        mean = float(np.clip(self.right.mean(), 1e-3, 1 - 1e-3))
        p = (right + mean) / (visits + 1)
        return np.log(p / (1 - p)) - np.log(mean / (1 - mean))

    def likelihood(self) -> Bernoulli:
        """The easiness that an answer is judged by leaves out that answer itself."""
        others = self.share[self.cluster] - self.right, self.visits[self.cluster] - 1
        return Bernoulli(self.right, self.easiness(*others))

    def first_fit(self, form: Form) -> Fitted:
        """To some of the answers, if there are many."""
        likelihood = self.likelihood()
        if len(self.right) <= 2 * FIRST_ANSWERS:
            return _fit_form(form, self.basis, self.design, likelihood)
        some = np.random.default_rng(0).choice(len(self.right), FIRST_ANSWERS, replace=False)
        return _fit_form(form, self.basis, self.design[some], Bernoulli(self.right[some], likelihood.offset[some]))

    def fitted(self, form: Form) -> Fitted:
        return self.refined(self.first_fit(form))

    def refined(self, first: Fitted) -> Fitted:
        """To all answers, which takes few steps from a fit to some of them."""
        assert isinstance(first.likelihood, Bernoulli)
        return refined(self.design, first, replace(self.likelihood(), slope=first.likelihood.slope), self.basis.kinds)

    def losses(self, fitted: Fitted) -> np.ndarray:
        """Minus the log-likelihood of the answers of each image."""
        assert isinstance(fitted.likelihood, Bernoulli)
        odds = fitted.parts.t(self.design) + fitted.likelihood.slope * self.likelihood().offset
        return np.bincount(self.cluster, weights=np.logaddexp(0, odds) - self.right * odds)

    def link(self, fitted: Fitted) -> Link:
        """Through the mean over images, in groups of equal easiness; its level is that of the answers."""
        assert isinstance(fitted.likelihood, Bernoulli)
        known = self.visits > 0
        easiness = np.sort(fitted.likelihood.slope * self.easiness(self.share[known], self.visits[known]))
        groups = np.array_split(easiness, min(EASINESS_GROUPS, len(easiness)))
        weights = np.array([len(group) for group in groups]) / len(easiness)
        link = _link(fitted.parts, fitted.parts.constant)
        link = replace(link, offsets=np.array([group.mean() for group in groups]), weights=weights)
        some = slice(None, None, max(1, len(self.design) // 20_000))
        u = (self.design[some] @ fitted.parts.w.T.astype(self.design.dtype)).astype(float)
        low, high = link.constant - 5, link.constant + 5
        for _ in range(40):
            link = replace(link, constant=(low + high) / 2)
            low, high = (link.constant, high) if link(u).mean() < self.right.mean() else (low, link.constant)
        return link


def _link(parts: Parts, constant: float, scale: float = 1.0) -> Link:
    return Link(constant, scale * parts.linear, scale * parts.rise, parts.steepness, parts.shift)
