"""How time and memory grow with what is asked: stages, table entries, frontiers, devices, classes, parameters.

    OMP_NUM_THREADS=1 python benchmarks/scale.py [--only WORD ...] [--repeats 3]

Every point is a fresh process: the input is made first and not counted, then the product is asked once, and the time
and the highest memory of that are kept (of `--repeats` processes the fastest and the least). The exponent is the slope
of a line through the logarithms: 1 is proportional, 2 quadratic. A frontier is its own size: its exponents are in the
number of its networks. Nothing here needs images, weights or a quiet device. Prints Markdown tables and writes
`benchmarks/results/scale.json`; with `--only`, the questions that are not asked stay there as they are.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scale_questions import QUESTIONS, Question

from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware

RESULTS = Path(__file__).parent / "results" / "scale.json"
LEAST_S, LEAST_MIB = 0.003, 2.0  # less says nothing about growth
OWN_SIZE = "frontier"  # of this axis the size is what comes out

# what every axis is made of, and what is no growth of ours
ABOUT = {
    "stages": "Stages of up to 4 blocks with 12 configurations each (with two indices: 2 blocks), latencies and "
    "worths real-valued.",
    "networks drawn": "Networks of 5 stages in the explorer of one report; `export` draws 80.",
    "entries": "10 stages of 4 blocks; every block with a fortieth of the entries as configurations. Saved tables have "
    "8 visits of 2 samples for every entry.",
    "frontier": "20 stages of up to 2 blocks with 6 configurations, worth ever closer to proportional to latency: the "
    "exponents are in the networks of the frontier.",
    "devices": "Bundles in a folder, 16 networks in each report (`export` draws 80: five times the time); device "
    "files of this machine in one folder.",
    "classes": "A report of 80 networks, and the smallest network of `fashion` with so many classes.",
    "width": "Six stages of the same width, four blocks each, expanded 6 to 18 times: 256 channels are 0.05 and 2048 "
    "are 3.2 billion parameters. Only the last row allocates any.",
}


@dataclass(frozen=True)
class Point:
    size: int
    seconds: float
    mebibytes: float  # the highest, above what was there before
    told: int  # what came out: points of a frontier, bytes of a page


@dataclass(frozen=True)
class Growth:
    axis: str
    question: str
    points: list[Point]
    time_exponent: float | None  # None: too quick to say
    memory_exponent: float | None
    note: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="WORD", help="Questions and axes with one of these words in them.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # question and size, asked in this process
    arguments = parser.parse_args()
    if arguments.one:
        number, size = map(int, arguments.one)
        print(json.dumps(asdict(asked_here(QUESTIONS[number], size))))
        return
    start, load = time.monotonic(), os.getloadavg()[0]
    stored = json.loads(RESULTS.read_text())["rows"] if arguments.only and RESULTS.exists() else []
    rows = {row["question"]: row for row in stored}
    axis = ""
    for number, question in enumerate(QUESTIONS):
        if arguments.only and not any(word in f"{question.axis} {question.name}" for word in arguments.only):
            continue
        if question.axis != axis:
            axis = question.axis
            print(
                f"\n**{axis}.** {ABOUT[axis]}\n\n"
                "| question | growing | time | memory | exponents |\n|---|---|---|---|---|"
            )
        found = growth(question, [in_fresh_process(number, size, arguments.repeats) for size in question.sizes])
        rows[f"{axis}: {question.name}"] = asdict(found) | {"question": f"{axis}: {question.name}"}
        print(line(found), flush=True)
    seconds = round(time.monotonic() - start)
    about = {"created": now(), "processor": hardware().processor, "load_at_start": load, "repeats": arguments.repeats}
    write_json(RESULTS, {**about, "seconds": seconds, "rows": list(rows.values())})
    print(f"\n{seconds} s")


def in_fresh_process(number: int, size: int, repeats: int) -> Point:
    """Of several, the least time and the least memory: both can only be disturbed upwards."""
    points = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--one", str(number), str(size)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        points.append(Point(**json.loads(done.stdout.splitlines()[-1])))
        if points[-1].seconds > 20:
            break
    seconds, mebibytes = min(p.seconds for p in points), min(p.mebibytes for p in points)
    return Point(size, seconds, mebibytes, points[0].told)


def asked_here(question: Question, size: int) -> Point:
    there = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        ask = question.prepare(size, Path(folder))
        gc.collect()
        before = forget_peak()
        start = time.perf_counter()
        told = ask()
        seconds, peak = time.perf_counter() - start, highest_mib()
        os.chdir(there)
    return Point(size, seconds, max(0.0, peak - before), told)


def forget_peak() -> float:
    """Memory that is in use now, in MiB; from here on the highest is counted anew, where the system can (Linux)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pass
    return highest_mib()


def highest_mib() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(row.split()[1]) / 1024 for row in status.read_text().splitlines() if row.startswith("VmHWM"))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def growth(question: Question, points: list[Point]) -> Growth:
    sizes = np.array([point.told if question.axis == OWN_SIZE else point.size for point in points], float)
    time_exponent = slope(sizes, np.array([point.seconds for point in points]), LEAST_S)
    memory_exponent = slope(sizes, np.array([point.mebibytes for point in points]), LEAST_MIB)
    return Growth(question.axis, question.name, points, time_exponent, memory_exponent, question.note)


def slope(sizes: np.ndarray, values: np.ndarray, least: float) -> float | None:
    """Of what is large enough to be told from nothing, if that is two points or more."""
    kept = values >= least
    if np.count_nonzero(kept) < 2:
        return None
    return round(float(np.polyfit(np.log(sizes[kept]), np.log(values[kept]), 1)[0]), 2)


def line(found: Growth) -> str:
    own = found.axis == OWN_SIZE
    sizes = ", ".join(f"{point.told if own else point.size:,}" for point in found.points)
    times = ", ".join(
        f"{point.seconds:.2g}" if point.seconds < 10 else f"{point.seconds:.0f}" for point in found.points
    )
    memory = ", ".join(f"{point.mebibytes:.0f}" for point in found.points)
    exponents = ", ".join("-" if e is None else f"{e:.2f}" for e in (found.time_exponent, found.memory_exponent))
    return f"| {found.question} | {sizes} | {times} s | {memory} MiB | {exponents} |" + (
        f" {found.note}" if found.note else ""
    )


if __name__ == "__main__":
    main()
