"""Is NEW slower than BASE? Two latency tables, or two bench results, entry by entry.

One rule, the same both ways, on logarithms. Slower (or faster) means all of: by more than the threshold; further from
nothing than the 95 % interval of the change is wide; significantly (one-sided Mann-Whitney test, with Holm's correction
over the entries). The same means that the change and the interval are both within the threshold. All else is
inconclusive, and so is what the files themselves put in doubt: an unstable measurement, two machines disturbed more
differently than the change is large, or a change of a file that has not changed. An entry that only one of the files
has cannot be compared; it is named, and then the whole is never the same.

Observations are processes of a bench and visits of a table, not samples, which share what the machine was doing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.errors import InputError
from deploynas.files import parse_json, read_schema
from deploynas.latency.bench import BenchResult
from deploynas.latency.machine_changes import changes, software_changes
from deploynas.latency.rank_tests import mann_whitney
from deploynas.latency.speed import UNDISTURBED
from deploynas.latency.statistic import summarise
from deploynas.latency.table import LatencyTable, Measurement

SIGNIFICANCE = 0.05
SHOWN = 5  # names of entries in a sentence

WHOLE = "whole model"
LEGEND = (
    "change: new against base, ± half the width of its 95 % interval; p: how likely a change this large in its "
    "direction would be if there were none, corrected for the number of entries"
)

Verdict = Literal["slower", "faster", "same", "inconclusive"]


class Row(BaseModel):
    name: str
    base_ms: float
    new_ms: float
    change: float  # new / base - 1
    uncertainty: float  # half-width of the 95 % interval of the change
    p_value: float  # of a change this large in its direction, were there none; corrected for the number of entries
    verdict: Verdict
    reason: str = ""  # why it is inconclusive, and what to do


class Comparison(BaseModel):
    schema_: Literal["deploynas/comparison"] = Field(default="deploynas/comparison", alias="schema")
    schema_version: int = 1
    base: str
    new: str
    threshold: float
    same_hardware: bool
    rows: list[Row]
    only_in_base: list[str] = []  # entries that cannot be compared
    only_in_new: list[str] = []
    verdict: Verdict
    notes: list[str] = []  # what else the files say about each other

    @property
    def incomplete(self) -> list[str]:
        """Which entries could not be compared, in words."""
        sides = ((self.only_in_base, self.new), (self.only_in_new, self.base))
        return [
            f"{len(names)} of {len(self.rows) + len(names)} entries are not in {file}, so nothing is known of "
            + ", ".join(names[:SHOWN])
            + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            for names, file in sides
            if names
        ]

    @property
    def reasons(self) -> list[str]:
        """Why entries are inconclusive, each reason once."""
        return list(dict.fromkeys(row.reason for row in self.rows if row.reason))

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
        said = [*self.notes, *self.incomplete, *self.reasons]
        return "\n".join([*lines, "", LEGEND, *(f"- {line}" for line in said)])


class _Side(BaseModel):
    """What both kinds of file have in common."""

    kind: str
    entries: dict[str, Measurement]
    groups: dict[str, list[int]] = {}  # which visits of an entry are one observation; none: each is
    disturbance: dict[str, float] = {}  # of an entry: how many times slower than undisturbed the machine was
    statistic: str
    device_hash: str
    settings: str = ""  # the device's hash as this version makes it
    hardware: dict[str, Any]
    versions: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    threads: int | str = 1
    model_sha256: str | None = None

    def observations(self, name: str) -> list[float]:
        measured = self.entries[name]
        visits = measured.settled_ms()
        groups = np.asarray(self.groups.get(name) or range(len(visits)))
        return [
            summarise(np.concatenate([visits[v] for v in np.flatnonzero(groups == g)]), self.statistic)
            for g in np.unique(groups)
        ]

    def disturbed(self, name: str) -> float:
        return self.disturbance.get(name, self.entries[name].disturbance)


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
    dropped = [name for name in before.entries if name not in after.entries]
    added = [name for name in after.entries if name not in before.entries]
    notes = _notes(before, after)
    return Comparison(
        base=str(base),
        new=str(new),
        threshold=threshold,
        same_hardware=same_hardware,
        rows=rows,
        only_in_base=dropped,
        only_in_new=added,
        verdict=_overall(rows, complete=not dropped and not added),
        notes=notes,
    )


def _notes(before: _Side, after: _Side) -> list[str]:
    notes = []
    if before.model_sha256 and before.model_sha256 == after.model_sha256:
        notes.append("both are the same file, byte for byte")
    return [*notes, *changes(before.provenance, after.provenance, before.threads)]


def _require_comparable(before: _Side, after: _Side, hardware_accepted: bool) -> None:
    if before.kind != after.kind:
        raise InputError(f"a {before.kind} cannot be compared with a {after.kind}")
    if (before.device_hash, before.settings) != (after.device_hash, after.settings):
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
    pairs = [(after.observations(name), before.observations(name)) for name in names]
    slower, faster = mann_whitney(pairs, "greater"), mann_whitney(pairs, "less")
    rows = []
    for name, p_slower, p_faster in zip(names, _holm(slower), _holm(faster), strict=True):
        old_ms, new_ms = before.entries[name].latency_ms, after.entries[name].latency_ms
        uncertainty = float(np.hypot(before.entries[name].relative_error, after.entries[name].relative_error))
        p_value = p_slower if new_ms >= old_ms else p_faster
        verdict = _verdict(new_ms / old_ms, uncertainty, p_value, threshold)
        reason = _doubt(before, after, name, verdict, threshold)
        rows.append(
            Row(
                name=name,
                base_ms=old_ms,
                new_ms=new_ms,
                change=new_ms / old_ms - 1,
                uncertainty=min(uncertainty, 99.0),
                p_value=p_value,
                verdict="inconclusive" if reason else verdict,
                reason=reason,
            )
        )
    return rows


def _verdict(ratio: float, uncertainty: float, p_value: float, threshold: float) -> Verdict:
    """On logarithms, where a change and its mirror are equally large."""
    change, enough = float(np.log(ratio)), float(np.log1p(threshold))
    if abs(change) > enough:
        if p_value < SIGNIFICANCE and uncertainty < abs(change):
            return "slower" if change > 0 else "faster"
        return "inconclusive"
    return "same" if uncertainty <= enough else "inconclusive"


def _doubt(before: _Side, after: _Side, name: str, verdict: Verdict, threshold: float) -> str:
    """Why the files do not allow a verdict, and what to do; empty if they do."""
    old, new = before.entries[name], after.entries[name]
    once = [which for which, side in (("BASE", before), ("NEW", after)) if len(side.observations(name)) < 2]
    if once:
        return f"{' and '.join(once)} was observed once only, which says nothing of the noise: measure again"
    shaky = [which for which, side in (("BASE", old), ("NEW", new)) if not side.stable]
    if verdict == "inconclusive":
        wide = f"the noise is as large as a change of {100 * threshold:g} %"
        return f"{wide}: measure {' and '.join(shaky) or 'both'} again, with more --runs or on a quieter machine"
    if verdict == "same":
        return ""
    same_file = before.model_sha256 and before.model_sha256 == after.model_sha256
    same_runtime = before.versions == after.versions and not software_changes(before.provenance, after.provenance)
    if same_file and same_runtime:
        return "the same file on the same runtime: the machine has changed, not the file; measure BASE again on it"
    if shaky:
        return f"{' and '.join(shaky)} is not stable, by its own account: measure again"
    apart = abs(np.log(after.disturbed(name) / before.disturbed(name)))
    if apart > max(float(np.log1p(threshold)), abs(np.log(new.latency_ms / old.latency_ms))):
        return (
            f"others slowed the machine down {before.disturbed(name):.2f} times for BASE and "
            f"{after.disturbed(name):.2f} times for NEW, which differs by more than the change: measure again at a "
            "quiet moment"
        )
    return ""


def _overall(rows: list[Row], complete: bool) -> Verdict:
    verdicts = {row.verdict for row in rows} | (set() if complete else {"inconclusive"})
    for verdict in ("slower", "inconclusive"):
        if verdict in verdicts:
            return verdict  # type: ignore[return-value]
    return "faster" if verdicts == {"faster"} else "same"


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
            entries={WHOLE: result.measurement},
            groups={WHOLE: result.processes},
            disturbance={WHOLE: result.timing.disturbance} if result.timing else {},
            statistic=_statistic(result),
            device_hash=result.device_hash,
            settings=result.device.hash,
            hardware=result.provenance["hardware"],
            versions=result.provenance.get("versions", {}),
            provenance=result.provenance,
            threads=result.device.threads,
            model_sha256=result.model_sha256,
        )
    if schema != "deploynas/latency-table":
        raise InputError(
            f"{path}: neither a latency table nor a bench result", hint="made by `profile` or `bench --out`"
        )
    table = LatencyTable.load(path)  # with all that a table must be, although only its evidence is compared
    if table.evidence is None:
        raise InputError(f"{path}: this table was not measured, it has no samples to compare")
    evidence = table.evidence
    networks = [*evidence.correction.networks, *evidence.validation.networks]
    named = {f"network {network.choices}": network for network in networks}
    return _Side(
        kind=f"table of space {table.space.hash}",
        entries={**{part.name: part for part in evidence.parts}, **named},
        statistic=evidence.device.statistic,
        device_hash=evidence.device_hash,
        settings=evidence.device.hash,
        hardware=evidence.provenance["hardware"],
        versions=evidence.provenance.get("versions", {}),
        provenance=evidence.provenance,
        threads=evidence.device.threads,
    )


def _statistic(result: BenchResult) -> str:
    """What the latency of a file is of its samples."""
    if result.timing and result.device.undisturbed and result.timing.undisturbed.how == "own":
        return f"p{round(100 * UNDISTURBED)}"
    return result.device.statistic
