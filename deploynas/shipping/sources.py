"""What a network came from: supernet, estimator, search result and latency tables, found by what the files remember.

With all of them a network that turns out too slow can be replaced; with fewer it can still be shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploynas.costs import RESOURCES
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export.bundle import Origin, origin
from deploynas.latency.table import LatencyTable
from deploynas.search.problem import Limit
from deploynas.search.result_file import SearchFile
from deploynas.space import Space


@dataclass(frozen=True)
class KnownTable:
    path: Path
    table: LatencyTable
    budget_ms: float | None  # that the search held it to


@dataclass(frozen=True)
class Sources:
    supernet: Path | None = None
    estimator: Path | None = None
    search: Path | None = None
    tables: tuple[KnownTable, ...] = ()
    resources: tuple[Limit, ...] = ()  # further limits that the search kept
    teacher: str | None = None  # as `finetune --teacher` was told

    @classmethod
    def remembered(cls, lineage: dict[str, Any]) -> Sources:
        """From what fine-tuning wrote down; files that are gone are left out."""
        search, supernet = (_existing(lineage.get(name)) for name in ("search", "supernet"))
        found = cls(supernet=supernet, teacher=lineage.get("teacher"))
        return found.with_search(search) if search else found

    def with_search(self, path: Path) -> Sources:
        file = SearchFile.load(path)
        used = (file.networks or [record.own for record in file.each])[:1]
        limits = used[0].limits if used else []
        budgets: list[float | None] = [use.budget for use in limits if use.unit == "ms"]
        budgets += [None] * (len(file.tables) - len(budgets))
        tables = [
            KnownTable(Path(record.path), LatencyTable.load(record.path), budget)
            for record, budget in zip(file.tables, budgets, strict=False)
            if Path(record.path).is_file()
        ]
        resources = tuple(Limit(use.name, use.budget) for use in limits if use.name in RESOURCES)
        estimator = _existing({"path": file.estimator.path})
        return replace(self, search=path, estimator=estimator, tables=tuple(tables), resources=resources)

    def with_tables(self, paths: Sequence[Path]) -> Sources:
        """More tables; one of a device that is known already replaces the known one."""
        added = [KnownTable(path, LatencyTable.load(path), None) for path in paths]
        names = {known.table.device_name for known in added}
        kept = [known for known in self.tables if known.table.device_name not in names]
        return replace(self, tables=(*kept, *added))

    def table_of(self, device: Device, space: Space) -> KnownTable | None:
        """The table of a device, which must be of the same settings and space."""
        for known in self.tables:
            evidence = known.table.evidence
            if evidence and evidence.device_hash == device.hash and known.table.space.hash == space.hash:
                return known
        beside = Path("profiles") / f"{device.name}.{space.name}.json"
        if beside.is_file():
            table = LatencyTable.load(beside)
            if table.evidence and table.evidence.device_hash == device.hash and table.space.hash == space.hash:
                return KnownTable(beside, table, None)
        return None

    def lineage(self, network: Path | None, table: KnownTable | None) -> dict[str, Origin | None]:
        weights = self.supernet.with_suffix(".safetensors") if self.supernet else None
        return {
            "table": origin(table.path if table else None),
            "estimator": origin(self.estimator),
            "search": origin(self.search),
            "supernet": origin(weights),
            "network": origin(network.with_suffix(".safetensors") if network else None),
        }


def remember(search: Path | None, supernet: Path, teacher: str | None) -> dict[str, Any]:
    """What fine-tuning writes down, for `Sources.remembered`."""
    found = {"search": origin(search), "supernet": origin(supernet.with_suffix(".safetensors"))}
    return {name: file.model_dump() for name, file in found.items() if file} | {"teacher": teacher}


def budget_of(device: Device, table: KnownTable | None, asked_ms: float | None) -> float | None:
    """What was asked for, else what the search was held to, else what the device file says."""
    if asked_ms is not None:
        if not asked_ms > 0:
            raise InputError(f"the budget must be positive, got {asked_ms}")
        return asked_ms
    if table and table.budget_ms is not None:
        return table.budget_ms
    return device.budgets.latency_ms


def _existing(record: Any) -> Path | None:
    path = Path(record["path"]) if isinstance(record, dict) and "path" in record else None
    return path if path and path.is_file() else None
