"""The command to type next, as it works when it is typed."""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploynas.space import Space


def search_command(estimator: Path, space: Space) -> str:
    """A search with a latency table of the space if one is at hand, else with a limit that needs none."""
    from deploynas.costs import Costs

    found = _table_at_hand(estimator, space)
    limit = ["--latency", found] if found else ["--max-params", str(Costs.of(space, space.heaviest()).params)]
    return join(["deploynas", "search", "--estimator", str(estimator), *limit, "--out", "found.json"])


def _table_at_hand(estimator: Path, space: Space) -> str | None:
    from deploynas.errors import InputError
    from deploynas.latency.table import LatencyTable

    for path in [*estimator.parent.glob("devices/*/table.json"), *Path("profiles").glob(f"*.{space.name}.json")]:
        try:
            table = LatencyTable.load(path)
        except InputError:
            continue
        if table.space.hash == space.hash:
            return f"{path}:{table.half_way():.3g}"
    return None


def after_profile(table_path: Path, budget_ms: float, space: Space, space_name: str) -> str:
    """A search if the space has an estimator, else what leads to one."""
    from deploynas.pipeline.run_folder import RunFolder

    run, limit = RunFolder.of_space(space.name), f"{table_path}:{budget_ms:.3g}"
    if run.estimator.exists():
        estimator = str(run.estimator)
        return join(["deploynas", "search", "--estimator", estimator, "--latency", limit, "--out", "found.json"])
    if run.w_star.exists():
        return join(["deploynas", "estimate", "--supernet", str(run.path)])
    return join(["deploynas", "train", "--space", space_name])
