"""Do two versions of ONNX Runtime give the same table on one machine? Profiles in turn, in two virtual environments.

    python benchmarks/runtimes.py OLD/bin/python NEW/bin/python [--space fashion]

Each Python has deploynas and a runtime of its own. Order: old, new, old, new, so that a difference between the two can
be told from one between two minutes. For each pair of tables: the ratio of their predictions for random networks, in
the median and at worst, and how many measured parts differ by no more than both stated errors allow (95 % half-widths,
added in squares), as they are and after the median ratio is taken out. Stored in benchmarks/results/runtimes.json.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import deploynas as dn
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, load_average

RESULT = Path(__file__).parent / "results" / "runtimes.json"
NETWORKS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs=2, metavar="PYTHON")
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--space", default="imagenet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.json" for i in range(4)]
        tables = [profiled(python, path, arguments) for python, path in zip(arguments.pythons * 2, paths, strict=True)]
    rng = np.random.default_rng(1)
    networks = [tables[0].space.sample(rng) for _ in range(NETWORKS)]
    pairs = [compared(a, b, networks) for a, b in itertools.combinations(tables, 2)]
    rows = [row(table) for table in tables]
    for one in [*rows, *pairs]:
        print(one)
    written = {"created": now(), "hardware": hardware().model_dump(), "load": load_average()}
    written |= {"device": arguments.device, "space": arguments.space, "profiles": rows, "pairs": pairs}
    write_json(RESULT, written)


def profiled(python: str, path: Path, arguments: argparse.Namespace) -> dn.LatencyTable:
    where = ["--device", arguments.device, "--space", arguments.space, "--out", str(path)]
    subprocess.run([python, "-m", "deploynas", "profile", *where], check=True, capture_output=True)
    return dn.LatencyTable.load(path)


def runtime(table: dn.LatencyTable) -> str:
    return table.evidence.provenance["versions"]["onnxruntime"]


def row(table: dn.LatencyTable) -> dict:
    evidence = table.evidence
    slow = np.concatenate([one.slowdown for one in evidence.parts])
    return {
        "runtime": runtime(table),
        "seconds": evidence.provenance["duration_s"],
        "mean_error": evidence.validation.mean_error,
        "slowdown": float(np.median(slow)),
        "forms": str(evidence.forms.chosen),
    }


def compared(a: dn.LatencyTable, b: dn.LatencyTable, networks: list[dn.Architecture]) -> dict:
    ratios = np.array([b.predict(one) / a.predict(one) for one in networks])
    parts = list(zip(a.evidence.parts, b.evidence.parts, strict=True))
    difference = np.log([y.latency_ms / x.latency_ms for x, y in parts])
    allowed = np.hypot([x.relative_error for x, _ in parts], [y.relative_error for _, y in parts])
    return {
        "tables": [runtime(a), runtime(b)],
        "ratio": float(np.median(ratios)),
        "worst": float(np.abs(ratios - 1).max()),
        "parts": len(parts),
        "within_stated": float(np.mean(np.abs(difference) <= allowed)),
        "within_stated_at_one_speed": float(np.mean(np.abs(difference - np.median(difference)) <= allowed)),
    }


if __name__ == "__main__":
    main()
