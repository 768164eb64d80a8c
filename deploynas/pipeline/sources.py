"""What a network came from: supernet, estimator, search result and latency tables, found by what the files remember.

With all of them a network that turns out too slow can be replaced; with fewer it can still be shipped. A file that has
changed since is not what the network came from, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploynas.accuracy.shipped_estimators import shipped_estimator
from deploynas.costs import RESOURCES
from deploynas.device import Device
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.limits import require_budget
from deploynas.pipeline.supernet import SupernetSource
from deploynas.provenance import NetworkLineage, Origin, origin
from deploynas.search.problem import Limit
from deploynas.search.result_file import InputRecord, LimitRecord, SearchFile
from deploynas.space import Space
from deploynas.training.data import Data


@dataclass(frozen=True)
class KnownTable:
    path: Path
    table: LatencyTable
    budget_ms: float | None  # that the search held it to


@dataclass(frozen=True)
class Sources:
    supernet: SupernetSource | None = None
    estimator: Path | None = None
    search: Path | None = None
    tables: tuple[KnownTable, ...] = ()
    resources: tuple[Limit, ...] = ()  # further limits that the search kept
    teacher: str | None = None  # as `finetune --teacher` was told

    @classmethod
    def remembered(cls, lineage: NetworkLineage, data: Data | None = None) -> Sources:
        """From what fine-tuning wrote down."""
        search, supernet = (found.unchanged() if found else None for found in (lineage.search, lineage.supernet))
        found = cls(supernet=SupernetSource(supernet, data) if supernet else None, teacher=lineage.teacher)
        return found.with_search(search) if search else found

    def with_search(self, path: Path) -> Sources:
        file = SearchFile.load(path)
        used = (file.networks or [record.own for record in file.each])[:1]
        limits = used[0].limits if used else []
        budgets = _latency_budgets(limits, len(file.tables))
        tables = [
            KnownTable(found, LatencyTable.load(found), budget)
            for record, budget in zip(file.tables, budgets, strict=True)
            if (found := _unchanged(record))
        ]
        resources = tuple(Limit(use.name, use.budget) for use in limits if use.name in RESOURCES)
        estimator = _unchanged(_where_it_is(file.estimator)) if file.estimator else None
        return replace(self, search=path, estimator=estimator, tables=tuple(tables), resources=resources)

    def with_tables(self, paths: Sequence[Path]) -> Sources:
        """More tables; one of a device that is known already replaces the known one."""
        added = [KnownTable(path, LatencyTable.load(path), None) for path in paths]
        names = {known.table.device_name for known in added}
        kept = [known for known in self.tables if known.table.device_name not in names]
        return replace(self, tables=(*kept, *added))

    def table_of(self, device: Device, space: Space) -> KnownTable | None:
        """The table of a device, which must be of the same settings and space."""
        beside = Path("profiles") / f"{device.name}.{space.name}.json"
        found = [KnownTable(beside, LatencyTable.load(beside), None)] if beside.is_file() else []
        for known in [*self.tables, *found]:
            evidence = known.table.evidence
            if evidence and evidence.device_hash == device.hash and known.table.space.hash == space.hash:
                return known
        return None

    def lineage(self, network: Path, made_from: NetworkLineage, table: KnownTable | None) -> dict[str, Origin | None]:
        """What a bundle states: of the supernet, the weights that the network really inherited."""
        found = {
            "table": origin(table.path if table else None),
            "estimator": origin(self.estimator),
            "search": origin(self.search) or made_from.search,
            "supernet": made_from.supernet,
            **({"imported": made_from.imported} if made_from.imported else {}),
            "network": origin(network.with_suffix(".safetensors")),
        }
        return {name: file.public() if file else None for name, file in found.items()}


def budget_of(device: Device, table: KnownTable | None, asked_ms: float | None) -> float | None:
    """What was asked for, else what the search was held to, else what the device file says."""
    if asked_ms is not None:
        return require_budget(asked_ms)
    if table and table.budget_ms is not None:
        return table.budget_ms
    return device.budgets.latency_ms


def _latency_budgets(limits: Sequence[LimitRecord], tables: int) -> list[float | None]:
    """The budget of each table, in their order; a frontier has none."""
    budgets: list[float | None] = [use.budget for use in limits if use.name not in RESOURCES]
    return [*budgets, *[None] * tables][:tables]


def _where_it_is(estimator: InputRecord) -> InputRecord:
    """One that ships is recorded by its name."""
    shipped = shipped_estimator(estimator.path)
    return estimator.model_copy(update={"path": str(shipped.path)}) if shipped else estimator


def _unchanged(record: InputRecord) -> Path | None:
    return Origin(path=record.path, sha256=record.sha256).unchanged()
