"""Does it matter that the target is elsewhere? One machine, profiled directly, through ssh, and with cut connections.

    python benchmarks/remote.py                    # cpu-1t, imagenet, default effort: about seven minutes
    python benchmarks/remote.py --quick            # fashion, little effort; nothing is stored

Starts an `sshd` of its own on the loopback (needs `openssh-server`). Profiles in turn directly, through ssh, directly,
through ssh, so that a difference between the two ways can be told from one between two hours; then once more through
ssh while every connection to the machine is cut ten times. For each pair of tables: the ratio of their predictions for
random networks, in the median and at worst; and how many measured entries differ by no more than both stated errors
(95 % half-widths, added in squares) allow, as they are and after the median ratio between the two is taken out. Results
go to benchmarks/results/remote.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import deploynas as dn
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.latency.profile import PLANNED_SHARE
from deploynas.progress import OnProgress, silent

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from loopback import Board, running_board

RESULTS = Path(__file__).parent / "results" / "remote.json"
NETWORKS = 200
LITTLE = {"workers": 1, "visits": 6, "part_visits": 6, "correction_networks": 12, "validation_networks": 6}


@dataclass(frozen=True)
class Profiled:
    way: str
    table: dn.LatencyTable
    seconds: float
    visits: Counter[tuple[int, str]]  # by worker and entry

    def row(self) -> dict:
        evidence = self.table.evidence
        everything = _entries(self.table)
        return {
            "way": self.way,
            "seconds": round(self.seconds, 1),
            "visits": sum(self.visits.values()),
            "mean_error": evidence.validation.mean_error,
            "unstable": sum(not one.stable for one in everything),
            "slowdown": round(float(np.median(np.concatenate([one.slowdown for one in everything]))), 3),
        }


def main() -> None:
    arguments = _arguments()
    device = dn.Device.load(arguments.device)
    if arguments.quick:
        effort = {**device.effort.model_dump(), **LITTLE, "time_limit_s": 0.1}
        device = device.model_copy(update={"effort": type(device.effort)(**effort)})
    space = dn.Space.load("fashion" if arguments.quick else arguments.space)
    with _board() as board:
        there = board.device(device)
        ways = [("direct", device), ("ssh", there), ("direct, again", device), ("ssh, again", there)]
        made = [_profiled(way, one, space) for way, one in ways]
        cutter = _Cutter(board, arguments.cuts)
        made.append(_profiled(f"ssh, cut {arguments.cuts} times", there, space, cutter))
    rng = np.random.default_rng(1)
    networks = [space.sample(rng) for _ in range(NETWORKS)]
    pairs = [_compared(a, b, networks) for a, b in itertools.combinations(made, 2)]
    document = {
        "created": now(),
        "command": " ".join(["python", *sys.argv]),
        "hardware": hardware().model_dump(),
        "versions": versions(),
        "load": load_average(),
        "device": device.describe(),
        "space": space.name,
        "profiles": [one.row() for one in made],
        "pairs": pairs,
        "cuts": cutter.cuts,
        "reconnections": cutter.reconnections,
        "complete": _complete(made[-1], made[1]),
    }
    _print(document)
    if not arguments.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        write_json(RESULTS, document)


@contextmanager
def _board() -> Iterator[Board]:
    with tempfile.TemporaryDirectory() as folder, running_board(Path(folder)) as board:
        os.environ["PATH"] = board.path
        yield board


class _Cutter:
    """Cuts all connections at even steps of the planned work, each time after a visit has come through."""

    def __init__(self, board: Board, wanted: int) -> None:
        self.board, self.cuts, self.reconnections = board, 0, 0
        self._moments = [PLANNED_SHARE * (i + 0.5) / wanted for i in range(wanted)]
        self._connected = True

    def __call__(self, fraction: float, what: str) -> None:
        if "attempt" in what:
            self.reconnections += 1
            self._connected = True
        elif self._connected and self._moments and fraction >= self._moments[0]:
            del self._moments[0]
            self.cuts += 1
            self._connected = False
            self.board.cut()


def _profiled(way: str, device: dn.Device, space: dn.Space, on_progress: OnProgress = silent) -> Profiled:
    with tempfile.TemporaryDirectory() as folder:
        journal, started = Path(folder) / "journal.jsonl", time.perf_counter()
        table = dn.profile(device, space, journal=journal, on_progress=on_progress)
        seconds = time.perf_counter() - started
        visits = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    print(f"{way}: {seconds:.0f} s, {len(visits)} visits", file=sys.stderr, flush=True)
    return Profiled(way, table, seconds, Counter((visit["worker"], visit["entry"]) for visit in visits))


def _entries(table: dn.LatencyTable) -> list:
    evidence = table.evidence
    return [*evidence.parts, *evidence.correction.networks, *evidence.validation.networks]


def _compared(a: Profiled, b: Profiled, networks: Sequence[dn.Architecture]) -> dict:
    ratios = np.array([b.table.predict(one) / a.table.predict(one) for one in networks])
    pairs = list(zip(_entries(a.table), _entries(b.table), strict=True))
    difference = np.log([y.latency_ms / x.latency_ms for x, y in pairs])
    allowed = np.hypot([x.relative_error for x, _ in pairs], [y.relative_error for _, y in pairs])
    return {
        "tables": [a.way, b.way],
        "ratio": float(np.median(ratios)),
        "worst": float(np.abs(ratios - 1).max()),
        "stated": [a.table.mean_error, b.table.mean_error],
        "entries": len(pairs),
        "within_stated": float(np.mean(np.abs(difference) <= allowed)),
        "within_stated_at_one_speed": float(np.mean(np.abs(difference - np.median(difference)) <= allowed)),
    }


def _complete(cut: Profiled, whole: Profiled) -> bool:
    """Every planned visit was made exactly once, whatever was cut; later workers only repeat what was not stable."""
    workers = cut.table.evidence.device.effort.workers

    def planned(one: Profiled) -> dict[tuple[int, str], int]:
        return {key: count for key, count in one.visits.items() if key[0] < workers}

    return planned(cut) == planned(whole)


def _print(document: dict) -> None:
    print("| profile | seconds | visits | error on whole networks | unstable entries | machine slower by |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in document["profiles"]:
        print(
            f"| {row['way']} | {row['seconds']:.0f} | {row['visits']} | {100 * row['mean_error']:.2f} % | "
            f"{row['unstable']} | {100 * (row['slowdown'] - 1):.0f} % |"
        )
    print("\n| tables | predictions, median ratio | worst | entries within stated errors | the same at one speed |")
    print("|---|---:|---:|---:|---:|")
    for pair in document["pairs"]:
        print(
            f"| {' / '.join(pair['tables'])} | {pair['ratio']:.4f} | {100 * pair['worst']:.1f} % | "
            f"{100 * pair['within_stated']:.0f} % | {100 * pair['within_stated_at_one_speed']:.0f} % |"
        )
    complete = "every planned visit once" if document["complete"] else "VISITS ARE MISSING OR DOUBLE"
    print(f"\n{document['cuts']} cuts, {document['reconnections']} reconnections: {complete}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--space", default="imagenet")
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
