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
            return str(path)
    return None


def after_profile(table_path: Path, space: Space, space_name: str) -> str:
    """A search if the space has an estimator, else what leads to one."""
    from deploynas.accuracy.shipped_estimators import SHIPPED
    from deploynas.pipeline.run_folder import RunFolder
    from deploynas.space import Space

    beside = RunFolder(Path(space_name).parent)  # an imported run has the file of its space in its folder
    run = beside if beside.w_star.exists() else RunFolder.of_space(space.name)
    if run.estimator.exists():
        given = ["--estimator", str(run.estimator), "--latency", str(table_path)]
        return join(["deploynas", "search", *given, "--out", "found.json"])
    if run.w_star.exists():
        return join(["deploynas", "estimate", "--supernet", str(run.path)])
    shipped = next((one for one in SHIPPED.values() if Space.load(one.space).hash == space.hash), None)
    if shipped:
        return join(["deploynas", "search", "--estimator", shipped.name, "--latency", str(table_path)])
    return join(["deploynas", "train", "--space", space_name])
