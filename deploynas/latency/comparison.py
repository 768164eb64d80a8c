"""Is NEW slower than BASE? Two latency tables, or two bench results, entry by entry.

Slower means both: by more than the threshold, and significantly (one-sided Mann-Whitney test on the visits, with
Holm's correction over the entries). Visits, not samples, are the observations, because samples of one visit share
whatever the machine was doing then. Too noisy to tell is its own answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.errors import InputError
from deploynas.files import parse_json, read_schema
from deploynas.latency.bench import BenchResult
from deploynas.latency.statistic import summarise
from deploynas.latency.table import Measurement, TableFile

SIGNIFICANCE = 0.05

Verdict = Literal["slower", "faster", "same", "inconclusive"]


class Row(BaseModel):
    name: str
    base_ms: float
    new_ms: float
    change: float  # new / base - 1
    uncertainty: float  # half-width of the 95 % interval of the change
    p_value: float  # of "not slower", corrected for the number of entries
    verdict: Verdict


class Comparison(BaseModel):
    schema_: Literal["deploynas/comparison"] = Field(default="deploynas/comparison", alias="schema")
    schema_version: int = 1
    base: str
    new: str
    threshold: float
    same_hardware: bool
    rows: list[Row]
    verdict: Verdict

    def markdown(self) -> str:
        lines = [
            f"**{self.verdict}**: `{self.new}` against `{self.base}`, threshold {100 * self.threshold:g} %",
            "",
            "| entry | base ms | new ms | change | p | verdict |",
            "|---|---:|---:|---:|---:|---|",
        ]
        for row in self.rows:
            change = f"{100 * row.change:+.1f} % ± {100 * row.uncertainty:.1f}"
            lines.append(
                f"| {row.name} | {row.base_ms:.3f} | {row.new_ms:.3f} | {change} | {row.p_value:.2g} | {row.verdict} |"
            )
        return "\n".join(lines)


class _Side(BaseModel):
    """What both kinds of file have in common."""

    kind: str
    entries: dict[str, Measurement]
    statistic: str
    device_hash: str
    hardware: dict[str, Any]


def compare(base: str | Path, new: str | Path, *, threshold: float = 0.1, any_hardware: bool = False) -> Comparison:
    """Compare two files of the same kind; refuse results that do not belong together."""
    if not 0 < threshold < 10:
        raise InputError(f"the threshold must be a fraction between 0 and 10, got {threshold}")
    before, after = _read(Path(base)), _read(Path(new))
    same_hardware = before.hardware.get("fingerprint") == after.hardware.get("fingerprint")
    _require_comparable(before, after, same_hardware or any_hardware)
    names = [name for name in before.entries if name in after.entries]
    if not names:
        raise InputError(f"{base} and {new} have no entry in common")
    rows = _rows(before, after, names, threshold)
    return Comparison(
        base=str(base),
        new=str(new),
        threshold=threshold,
        same_hardware=same_hardware,
        rows=rows,
        verdict=_overall(rows),
    )


def _require_comparable(before: _Side, after: _Side, hardware_accepted: bool) -> None:
    if before.kind != after.kind:
        raise InputError(f"a {before.kind} cannot be compared with a {after.kind}")
    if before.device_hash != after.device_hash:
        raise InputError(
            "the two were measured with different device settings (threads, batch, precision, provider or statistic)",
            hint="measure both with the same device file",
        )
    if not hardware_accepted:
        raise InputError(
            f"the two were measured on different hardware ({before.hardware.get('processor')}, "
            f"{before.hardware.get('cores')} cores; {after.hardware.get('processor')}, "
            f"{after.hardware.get('cores')} cores)",
            hint="`--any-hardware` compares them all the same",
        )


def _rows(before: _Side, after: _Side, names: list[str], threshold: float) -> list[Row]:
    from scipy.stats import mannwhitneyu

    slower, faster = [], []
    for name in names:
        old, fresh = (_per_visit(side.entries[name], side.statistic) for side in (before, after))
        slower.append(mannwhitneyu(fresh, old, alternative="greater").pvalue)
        faster.append(mannwhitneyu(fresh, old, alternative="less").pvalue)
    rows = []
    for name, p_slower, p_faster in zip(names, _holm(slower), _holm(faster), strict=True):
        old_ms, new_ms = before.entries[name].latency_ms, after.entries[name].latency_ms
        change = new_ms / old_ms - 1
        uncertainty = float(np.hypot(before.entries[name].relative_error, after.entries[name].relative_error))
        rows.append(
            Row(
                name=name,
                base_ms=old_ms,
                new_ms=new_ms,
                change=change,
                uncertainty=min(uncertainty, 99.0),
                p_value=p_slower,
                verdict=_verdict(change, uncertainty, p_slower, p_faster, threshold),
            )
        )
    return rows


def _verdict(change: float, uncertainty: float, p_slower: float, p_faster: float, threshold: float) -> Verdict:
    if change > threshold:
        return "slower" if p_slower < SIGNIFICANCE and uncertainty < change else "inconclusive"
    if change + uncertainty > threshold and uncertainty > threshold:
        return "inconclusive"  # a change of the threshold's size would drown in this noise
    if change < -threshold and p_faster < SIGNIFICANCE:
        return "faster"
    return "same"


def _overall(rows: list[Row]) -> Verdict:
    verdicts = {row.verdict for row in rows}
    for verdict in ("slower", "inconclusive"):
        if verdict in verdicts:
            return verdict  # type: ignore[return-value]
    return "faster" if verdicts == {"faster"} else "same"


def _per_visit(measured: Measurement, statistic: str) -> list[float]:
    return [summarise(visit, statistic) for visit in measured.settled_ms()]


def _holm(p_values: list[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false alarm stays below the level."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - rank)))
        corrected[i] = running
    return corrected.tolist()


def _read(path: Path) -> _Side:
    schema = read_schema(path)
    if schema == "deploynas/bench":
        result = parse_json(path, BenchResult)
        return _Side(
            kind="bench result",
            entries={"whole model": result.measurement},
            statistic=result.device["statistic"],
            device_hash=result.device_hash,
            hardware=result.provenance["hardware"],
        )
    if schema != "deploynas/latency-table":
        raise InputError(
            f"{path}: neither a latency table nor a bench result", hint="made by `profile` or `bench --out`"
        )
    table = parse_json(path, TableFile)
    if table.evidence is None:
        raise InputError(f"{path}: this table was not measured, it has no samples to compare")
    evidence = table.evidence
    networks = [*evidence.correction.networks, *evidence.validation.networks]
    named = {f"network {network.choices}": network for network in networks}
    return _Side(
        kind=f"table of space {table.space_hash}",
        entries={**{part.name: part for part in evidence.parts}, **named},
        statistic=evidence.device["statistic"],
        device_hash=evidence.device_hash,
        hardware=evidence.provenance["hardware"],
    )
