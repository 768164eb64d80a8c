"""From isolated blocks to blocks in a network: what isolation misses, fitted on whole networks.

A block measured alone pays for the call into the runtime, and for converting its input and output between the
runtime's layouts; inside a network it pays neither, but meets colder caches. Every correction here is additive over
blocks, so that the table stays a table:

    block_ms = scale * isolated_ms + per_block + per_element * (input + output elements)

Which terms are kept is decided by error on networks held out from the fit, and the networks are chosen to tell the
terms apart. Where a space has several kinds of block or operation, each may have a scale of its own: a pooling that is
measured alone is mostly conversions, a convolution mostly itself. docs/latency-model.md has what was tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.blocks import Part
from deploynas.blocks.cell import EdgeOperation
from deploynas.blocks.geometry import strided
from deploynas.costs import Costs
from deploynas.space import Architecture, Ragged, Space

FOLDS = 10
REPEATS = 5  # of the cross-validation, each with folds of its own
CANDIDATES = 400  # random networks that those a table is corrected by are chosen from
# terms of each correction, simplest first; `sum` is what most latency tables are
FORMS: dict[str, tuple[str, ...]] = {
    "sum": (),
    "scale": ("scale",),
    "affine": ("scale", "constant"),
    "per-block": ("scale", "constant", "per_block"),
    "layout": ("scale", "constant", "per_block", "per_element"),
}
PER_KIND = "per-kind"  # richer than all of them: a constant, and a scale for each kind


@dataclass(frozen=True)
class IsolatedTable:
    """The measured parts at one input size, before any correction."""

    space: Space
    fixed_ms: float
    block_ms: Ragged

    def terms(self, architecture: Architecture) -> dict[str, float]:
        """The value of every term of a correction, summed over what a network really builds."""
        blocks = _built_parts(architecture)
        isolated, of_kind = self.fixed_ms, dict.fromkeys(kinds_of(self.space), 0.0)
        for s, b, c in self.space.built_options(architecture):
            isolated += self.block_ms[s][b][c]
            for kind in _kinds(self.space.option_parts(s, b, c)):
                of_kind[kind] += self.block_ms[s][b][c]
        return {
            "scale": isolated,
            "constant": 1.0,
            "per_block": float(len(blocks)),
            "per_element": sum(_elements(block) for block in blocks),
            **of_kind,
        }


@dataclass(frozen=True)
class FittedCorrection:
    method: str
    coefficients: dict[str, float]
    held_out_error: dict[str, float]  # of every method tried

    def apply(self, table: IsolatedTable) -> tuple[float, Ragged]:
        """The corrected fixed part and blocks."""
        weight = {"scale": 1.0, "constant": 0.0, "per_block": 0.0, "per_element": 0.0, **self.coefficients}
        if self.method == PER_KIND:
            weight["scale"] = 0.0  # what is fixed is in the constant

        def corrected(s: int, b: int, c: int, isolated_ms: float) -> float:
            parts = table.space.option_parts(s, b, c)
            elements = sum(map(_elements, parts))
            scale = weight["scale"] + sum(weight.get(kind, 0.0) for kind in _kinds(parts))
            return scale * isolated_ms + weight["per_block"] * len(parts) + weight["per_element"] * elements

        blocks = tuple(
            tuple(tuple(corrected(s, b, c, ms) for c, ms in enumerate(row)) for b, row in enumerate(stage))
            for s, stage in enumerate(table.block_ms)
        )
        return weight["scale"] * table.fixed_ms + weight["constant"], blocks


def spread_out(space: Space, count: int, rng: np.random.Generator) -> list[Architecture]:
    """Networks that together say most about the terms of a correction: both ends of the space and, greedily, those of
    many random ones that the chosen ones say least about (a D-optimal design).
    """
    if count == 0:
        return []
    rows = space.decisions.draw(CANDIDATES, rng)
    for s, group in enumerate(space.built_groups):
        # depth by depth at one end or the other: random networks are all much alike
        rows[:, s] = rng.choice([0, len(group.depths) - 1], size=CANDIDATES)
    candidates = dict.fromkeys([space.smallest(), space.heaviest(), *space.architectures(rows)])
    networks = [network for network in candidates if wholly_built(network)]
    # before anything is measured, what a block does (MACs) and what it moves stand for what it takes
    rows = np.array([_features(network) for network in networks])
    rows /= rows.mean(axis=0)
    picked = list(range(min(2, count, len(networks))))
    while len(picked) < min(count, len(networks)):
        known = rows[picked].T @ rows[picked] + 1e-6 * np.eye(rows.shape[1])
        news = np.einsum("ij,ij->i", rows @ np.linalg.inv(known), rows)
        news[picked] = -1
        picked.append(int(np.argmax(news)))
    return [networks[i] for i in picked]


def kinds_of(space: Space) -> tuple[str, ...]:
    """Of the options of a space, in order; a part says its own where it does several things."""
    options = ((s, b, c) for s, group in enumerate(space.built_groups) for b, choice in enumerate(group.choices)
               for c in range(len(choice.options)))  # fmt: skip
    return tuple(dict.fromkeys(kind for option in options for kind in _kinds(space.option_parts(*option))))


def forms_of(space: Space) -> dict[str, tuple[str, ...]]:
    """The corrections that a space may have, simplest first."""
    kinds = kinds_of(space)
    return {**FORMS, PER_KIND: ("constant", *kinds)} if len(kinds) > 1 else dict(FORMS)


def _kinds(parts: Sequence[Part]) -> tuple[str, ...]:
    """That of an option: its parts are the same thing in several places."""
    names = (part.operation if isinstance(part, EdgeOperation) else part.code for part in parts)
    return tuple(dict.fromkeys(f"scale/{name}" for name in names))


def wholly_built(network: Architecture) -> bool:
    """Whether nothing that was decided is left out: a table prices all of it, and a search wants nothing that idles."""
    space = network.space
    decided = sum(len(space.option_parts(*option)) for option in network.blocks())
    return decided == len(_built_parts(network))


def _built_parts(network: Architecture) -> list[Part]:
    """What its decisions really build, each part as often as it is repeated."""
    space = network.space
    return [part for s, b, c in space.built_options(network) for part in space.option_parts(s, b, c)]


def _features(network: Architecture) -> list[float]:
    network = network.at_its_size
    blocks = _built_parts(network)
    return [Costs.of(network.space, network).macs, 1.0, float(len(blocks)), sum(_elements(block) for block in blocks)]


def fit(
    tables: Sequence[IsolatedTable], networks: Sequence[Architecture], measured_ms: Sequence[float]
) -> FittedCorrection:
    """Fitted on all networks: of the methods that are not significantly worse on held-out ones, the richest.

    The richest, since what isolation misses is known to be there; on a noisy machine the errors cannot tell. One
    correction serves the tables of all input sizes: its terms know the size.
    """
    terms = [tables[network.size_index].terms(network.at_its_size) for network in networks]
    measured = np.asarray(measured_ms, float)
    errors, fitted, forms = {}, {}, forms_of(tables[0].space)
    for method, names in forms.items():
        if len(networks) < 4 * len(names):
            continue  # too few networks to tell the terms apart
        coefficients = _solve(names, terms, measured)
        if not all(_physical(FittedCorrection(method, coefficients, {}).apply(table)) for table in tables):
            continue
        fitted[method] = coefficients
        errors[method] = _held_out_errors(names, terms, measured)
    means = {method: float(error.mean()) if len(error) else 0.0 for method, error in errors.items()}
    best = min(means, key=lambda method: means[method])
    kept = [method for method in fitted if not _worse(errors[method], errors[best])]
    return FittedCorrection(kept[-1], fitted[kept[-1]], means)


def _worse(errors: np.ndarray, best: np.ndarray) -> bool:
    """By more than the standard error of the difference, network by network."""
    if len(errors) < 2:
        return False
    difference = errors - best
    return bool(difference.mean() > difference.std(ddof=1) / len(difference) ** 0.5)


def _solve(names: tuple[str, ...], terms: list[dict[str, float]], measured: np.ndarray) -> dict[str, float]:
    """Least squares of the relative error."""
    if not names:
        return {}
    matrix = np.array([[term[name] for name in names] for term in terms])
    scaled = matrix / measured[:, None]
    size = np.abs(scaled).max(axis=0)  # the terms have very different units
    solution = np.linalg.lstsq(scaled / size, np.ones(len(measured)), rcond=None)[0] / size
    return dict(zip(names, solution.tolist(), strict=True))


def _held_out_errors(names: tuple[str, ...], terms: list[dict[str, float]], measured: np.ndarray) -> np.ndarray:
    """Relative error of every network by cross-validation, a mean over its repeats."""
    count = len(terms)
    rng = np.random.default_rng(0)
    errors = np.zeros(count)
    for _ in range(REPEATS if count else 0):
        for held_out in np.array_split(rng.permutation(count), min(FOLDS, count)):
            kept = np.setdiff1d(np.arange(count), held_out)
            coefficients = _solve(names, [terms[i] for i in kept], measured[kept]) if len(kept) else {}
            for i in held_out:
                predicted = sum(coefficients[n] * terms[i][n] for n in names) if names else terms[i]["scale"]
                errors[i] += abs(predicted - measured[i]) / measured[i] / REPEATS
    return errors


def _physical(corrected: tuple[float, Ragged]) -> bool:
    """No part of a network takes less than no time."""
    fixed, blocks = corrected
    return fixed >= 0 and all(ms >= 0 for stage in blocks for row in stage for ms in row)


def _elements(block: Part) -> float:
    """Elements, in millions, that isolation converts between layouts: the block's input and output."""
    entering = block.in_channels * block.height * block.width
    leaving = block.out_channels * strided(block.height, block.stride) * strided(block.width, block.stride)
    return (entering + leaving) / 1e6
