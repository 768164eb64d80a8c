"""Does a clock see what `bench` says? Files against a plain loop of their own, on a quiet and on a loaded machine.

    python benchmarks/promise.py            # ten files, about ten minutes
    python benchmarks/promise.py --quick    # four small ones

Ten networks of two spaces, fp32 and int8, in the form that is shipped. `bench` states what each takes undisturbed and
on the machine as it was, with 95 % intervals, and whether a budget is held. Beside it, in a fresh process each time, a
loop that knows nothing of ours: open the file, call `run`, look at the clock. It runs before and after each statement,
so both see about the same hours. `loaded`: every core also runs an endless loop in a session of its own, which gets its
share of the processor.

What a loop on the quiet machine sees in its fastest twentieth is compared with `undisturbed`, and its median and p90
with those of the clock; to both is added what the same statement says that `session.run` from Python adds. Outcomes are
of budgets around what the loop saw on the quiet machine. `held` is contradicted if a loop's median, before or after, is
over the budget. Each run is added to benchmarks/results/promise.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from deploynas import graph
from deploynas.device import Device
from deploynas.files import now, write_json
from deploynas.latency.bench import bench
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.outcome import outcome_of
from deploynas.space import Space

RESULT = Path(__file__).parent / "results" / "promise.json"
BUDGETS = (0.9, 1.0, 1.05, 1.15, 1.3, 1.6)  # times the quiet loop's median
LOOP = """
import sys, time
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
[given] = session.get_inputs()
feed = {given.name: numpy.random.default_rng(0).standard_normal([1, *given.shape[1:]]).astype("float32")}
times, begun = [], time.perf_counter()
while time.perf_counter() - begun < 3.0 or len(times) < 100:
    start = time.perf_counter()
    session.run(None, feed)
    times.append(1000 * (time.perf_counter() - start))
print(*numpy.percentile(times[20:], (5, 50, 90)), len(times) - 20)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    device = Device.load(arguments.device)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = list(written(Path(folder), quick=arguments.quick))
        for machine in ("quiet", "loaded"):
            for path in files:
                with load(machine == "loaded"):
                    before = loop(path)
                    stated = bench(path, device).timing
                    after = loop(path)
                assert stated is not None
                rows.append({"file": path.name, "machine": machine, "stated": stated.model_dump(mode="json"),
                             "loops": [before, after]})  # fmt: skip
                print_row(rows[-1])
    outcomes = judged(rows, device)
    summary = summarised(rows, outcomes)
    print("\n" + "\n".join(f"{name}: {value}" for name, value in summary.items()))
    document = {
        "date": now(),
        "device": device.name,
        "hardware": hardware().processor,
        "versions": versions(),
        "load": load_average(),
        "summary": summary,
        "outcomes": outcomes,
        "rows": rows,
    }
    if not arguments.quick:
        earlier = json.loads(RESULT.read_text())["recordings"] if RESULT.exists() else []
        write_json(RESULT, {"recordings": [*earlier, document]})


def written(folder: Path, quick: bool) -> Iterator[Path]:
    """Five networks, each in both precisions, with a free batch as they are shipped."""
    networks = []
    for name, count in (("fashion", 2),) if quick else (("fashion", 3), ("imagenet", 2)):
        space, rng = Space.load(name), np.random.default_rng(7)
        networks += [(name, i, space, space.sample(rng)) for i in range(count)]
    for name, i, space, architecture in networks:
        for precision in ("fp32", "int8"):
            path = folder / f"{name}-{i}.{precision}.onnx"
            model = graph.network(space, architecture, batch=None, precision=precision)
            path.write_bytes(model.SerializeToString())
            yield path


@contextmanager
def load(wanted: bool) -> Iterator[None]:
    burn = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with us, however we end
    count = os.cpu_count() or 1 if wanted else 0
    burners = [subprocess.Popen([sys.executable, "-c", burn], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def loop(path: Path) -> dict[str, float]:
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    run = [sys.executable, "-c", LOOP, str(path)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, env=environment, start_new_session=True)
    return dict(zip(("p5", "p50", "p90", "n"), map(float, said.stdout.split()), strict=True))


def quiet_loop(rows: list[dict], file: str, which: str) -> float:
    """What the loop saw of a file on the quiet machine: the lower of the two times."""
    return min(one[which] for row in rows if row["file"] == file and row["machine"] == "quiet" for one in row["loops"])


def judged(rows: list[dict], device: Device) -> list[dict]:
    from deploynas.timing import Timing

    found = []
    for row in rows:
        timing = Timing.model_validate(row["stated"])
        for times in BUDGETS:
            budget_ms = times * quiet_loop(rows, row["file"], "p50")
            medians = [one["p50"] for one in row["loops"]]
            found.append({"file": row["file"], "machine": row["machine"], "budget": times,
                          "outcome": outcome_of(timing, budget_ms, device.budget),
                          "loops_over": sum(median > budget_ms for median in medians)})  # fmt: skip
    return found


def summarised(rows: list[dict], outcomes: list[dict]) -> dict:
    summary: dict = {}
    for machine in ("quiet", "loaded"):
        own = [row for row in rows if row["machine"] == machine]
        errors: dict[str, list[float]] = {"undisturbed": [], "p50": [], "p90": []}
        inside: dict[str, list[bool]] = {"undisturbed": [], "p50": []}
        for row in own:
            quiet, clock = row["stated"]["undisturbed"], row["stated"]["clock"]
            truth = float(np.median([one["p5"] for r in rows if r["file"] == row["file"] and r["machine"] == "quiet"
                                     for one in r["loops"]]))  # fmt: skip
            seen = {which: float(np.mean([one[which] for one in row["loops"]])) for which in ("p50", "p90")}
            called = row["stated"]["loading"]["call_ms"]
            errors["undisturbed"].append((quiet["latency_ms"] + called) / truth - 1)
            errors["p50"].append((clock["p50_ms"] + called) / seen["p50"] - 1)
            errors["p90"].append((clock["p90_ms"] + called) / seen["p90"] - 1)
            inside["undisturbed"].append(within(truth - called, quiet["interval_ms"]))
            inside["p50"].append(within(seen["p50"] - called, clock["p50_interval_ms"]))
        for name, values in errors.items():
            off = np.array(values)
            summary[f"{machine}, {name}: stated over seen"] = (
                f"median {100 * np.median(off):+.1f} %, worst {100 * off[np.abs(off).argmax()]:+.1f} %"
            )
        for name, kept in inside.items():
            summary[f"{machine}, {name}: 95 % intervals that hold"] = f"{sum(kept)} of {len(kept)}"
    for outcome in ("held", "held undisturbed", "missed"):
        summary[f"outcomes `{outcome}`"] = sum(one["outcome"] == outcome for one in outcomes)
    green = [one for one in outcomes if one["outcome"] == "held"]
    summary["held, and a loop's median over the budget (before, after: two chances each)"] = (
        f"{sum(one['loops_over'] > 0 for one in green)} of {len(green)}"
    )
    return summary


def within(value: float, interval: list[float]) -> bool:
    return interval[0] <= value <= interval[1]


def print_row(row: dict) -> None:
    quiet, clock = row["stated"]["undisturbed"], row["stated"]["clock"]
    loops = "; ".join(f"p5 {one['p5']:.4g} p50 {one['p50']:.4g} p90 {one['p90']:.4g}" for one in row["loops"])
    low, high = quiet["interval_ms"]
    print(
        f"{row['machine']:6} {row['file']:20} undisturbed {quiet['latency_ms']:.4g} ({low:.4g} to {high:.4g}, "
        f"{quiet['how']}), p50 {clock['p50_ms']:.4g}, p90 {clock['p90_ms']:.4g}, "
        f"a call adds {row['stated']['loading']['call_ms']:.2g} | loops: {loops}",
        flush=True,
    )


if __name__ == "__main__":
    main()
