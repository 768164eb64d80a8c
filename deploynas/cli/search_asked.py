"""What the command line of `search` asks for, whatever the solver; options of one solver are in that solver's file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploynas.cli.options import Values, goal_of, resources_of
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.pipeline.goal import Goal
    from deploynas.pipeline.search_request import BudgetedTable
    from deploynas.search.problem import Limit


@dataclass(frozen=True)
class Asked:
    estimator: Path | None
    tables: list[BudgetedTable]
    goal: Goal | None
    resources: list[Limit]
    space_name: str | None
    solver: str
    seed: int
    top: int | None
    rerank: Path | None
    measure: Path | None
    device_name: str | None
    refine: int | None
    supernet: Path | None
    data: str | None
    each: bool
    frontier: bool
    thin: int | None
    dry_run: bool
    out: Path | None
    as_json: bool
    own: Values  # by name, the options that only one solver has

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Of the solver's own options those that were given; for the others its settings have defaults."""
        return {name: self.own[name] for name in names if self.own[name] is not None}

    @classmethod
    def of(cls, options: Values) -> Asked:
        from deploynas.pipeline.search_request import BudgetedTable

        _refuse_contradictions(options)
        _refuse_idle(options)
        goal = goal_of(options)
        tables = [BudgetedTable.parse(text) for text in options["latency"]]  # type: ignore[attr-defined]
        asked = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        return cls(tables=tables, goal=goal, resources=resources_of(options), own=options, **asked)  # type: ignore[arg-type]


def _refuse_contradictions(options: Values) -> None:
    answers = {"--top": options["top"], "--each": options["each"], "--frontier": options["frontier"]}
    given = [name for name, value in {**answers, "--dry-run": options["dry_run"]}.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(f'`{name}`' for name in given)} ask for different answers", hint="give one")
    if options["thin"] is not None and not options["frontier"]:
        raise InputError("`--thin` is for `--frontier`")


def _refuse_idle(options: Values) -> None:
    if options["rerank"] is not None and options["measure"] is not None:
        raise InputError("`--measure` does what `--rerank` does, and more", hint="give one of them")
    for name in ("rerank", "measure"):
        if options[name] is not None and options["top"] is None:
            raise InputError(
                f"`--{name}` is for the networks of `--top K`", hint=f"like `--top 5 --{name} runs/fashion`"
            )
    if options["device_name"] is not None and options["measure"] is None:
        raise InputError("`--device` is for `--measure`")


def refuse_options_of_others(asked: Asked, owners: Mapping[str, Mapping[str, str]]) -> None:
    """`owners`: the options, by name, that only the solver of that name reads."""
    for owner, options in owners.items():
        for name, option in options.items():
            if owner != asked.solver and asked.own[name] is not None:
                raise InputError(
                    f"`{option}` is for `--solver {owner}`", hint=f"add `--solver {owner}`, or leave it out"
                )


def refuse_for(whom: str, refused: Sequence[tuple[str, object, str]]) -> None:
    """Options that a way to search has no use for: each with what was given, and what to do instead."""
    for option, value, instead in refused:
        if value:
            raise InputError(f"`{whom}` takes no `{option}`", hint=instead)
