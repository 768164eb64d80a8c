"""What changing one thing about a network is worth there: accuracy by the estimator, milliseconds by a table.

A change is a step to a neighbouring level: a stage's depth one step up or down (added blocks repeat the last one), a
factor such as the kernel one step up or down, or another kind of block; in one block, and in all blocks of a stage that
can make the same step; or the next larger or smaller input, where that is open. It is the difference between two whole
networks, so it holds for estimators of every kind, and for this network only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deploynas.accuracy.comparisons import kind_change
from deploynas.accuracy.differences import difference
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.space import Architecture, Option
from deploynas.space.coefficients import Priced
from deploynas.space.structure import INPUT_SIZE


@dataclass(frozen=True)
class Change:
    """One thing about a network changed, and by how much that changes what is expected of it."""

    place: str  # "stage 2", or "stage2/block1" for one block of several
    what: str  # "depth 2 → 3", "kernel 3 → 5", "se none → 0.25"
    architecture: Architecture  # the changed network
    accuracy: float  # expected afterwards minus expected before, a fraction
    accuracy_se: float | None  # None: not known
    latency_ms: float | None  # likewise; None without a table

    @property
    def accuracy_per_ms(self) -> float | None:
        """None where there is no table, or where the change makes nothing slower."""
        return self.accuracy / self.latency_ms if self.latency_ms is not None and self.latency_ms > 0 else None


def single_changes(estimator: StoredEstimator, architecture: Architecture, table: Priced | None = None) -> list[Change]:
    """All of them, those worth most accuracy first."""
    cost = table.cost() if table else None
    before_ms = cost.total(architecture) if cost else 0.0
    found = []
    for place, what, changed in _neighbours(architecture):
        gain = difference(estimator, changed, architecture)
        slower = cost.total(changed) - before_ms if cost else None
        found.append(Change(place, what, changed, gain.accuracy, gain.se, slower))
    return sorted(found, key=lambda change: -change.accuracy)


def _neighbours(architecture: Architecture) -> Iterator[tuple[str, str, Architecture]]:
    """Where, what, and the network that it makes."""
    space = architecture.space
    for s, (group, choice) in enumerate(zip(space.built_groups, architecture.stages, strict=True)):

        def with_stage(own: tuple[int, ...], s: int = s) -> Architecture:
            return space.architecture([*architecture.choices[:s], own, *architecture.choices[s + 1 :]])

        for level in _beside(len(choice), group.depths):
            depth = int(level)
            own = (*choice, *(choice[-1],) * depth)[:depth]
            yield group.name, f"depth {len(choice)} → {depth}", with_stage(own)
        steps = [_steps(of_choice.options, c) for of_choice, c in zip(group.choices, choice, strict=False)]
        for what in dict.fromkeys(what for of_block in steps for what in of_block):
            able = [b for b, of_block in enumerate(steps) if what in of_block]
            if len(able) > 1 or len(choice) == 1:
                everywhere = tuple(of_block.get(what, c) for of_block, c in zip(steps, choice, strict=True))
                yield group.name, what, with_stage(everywhere)
            if len(choice) > 1:
                for b in able:
                    yield group.choices[b].name, what, with_stage((*choice[:b], steps[b][what], *choice[b + 1 :]))

    yield from _other_sizes(architecture)


def _other_sizes(architecture: Architecture) -> Iterator[tuple[str, str, Architecture]]:
    space, own = architecture.space, architecture.size_index
    for beside in _beside(own, range(len(space.sizes))):
        what = f"{INPUT_SIZE} {space.sizes[own]} → {space.sizes[int(beside)]}"
        yield "input", what, space.architecture([*architecture.stages, (int(beside),)])


def _steps(options: Sequence[Option], c: int) -> dict[str, int]:
    """What can be changed about one option, in words, and the options that come of it."""
    own, found = options[c], dict[str, int]()
    for other, candidate in enumerate(options):
        if candidate.kind != own.kind and candidate.factors == own.factors:
            found[kind_change(own, candidate)] = other
    for aspect, level in own.factors:
        alike = {
            dict(candidate.factors)[aspect]: other
            for other, candidate in enumerate(options)
            if candidate.kind == own.kind and _without(candidate, aspect) == _without(own, aspect)
        }
        for beside in _beside(level, sorted(alike)):
            found[f"{aspect} {_level(aspect, level)} → {_level(aspect, beside)}"] = alike[beside]
    return found


def _beside(value: float, levels: Sequence[float]) -> list[float]:
    """The next larger level and the next smaller one, as far as there are such."""
    above, below = [v for v in levels if v > value], [v for v in levels if v < value]
    return [*above[:1], *below[-1:]]


def _without(option: Option, aspect: str) -> dict[str, float]:
    return {name: level for name, level in option.factors if name != aspect}


def _level(aspect: str, level: float) -> str:
    return "none" if aspect == "se" and not level else f"{level:g}"
