"""Is the latency table right about whole networks? Profile, then time networks that the table has never seen.

    python benchmarks/latency_table.py                    # cpu-1t, imagenet, default effort, 60 networks
    python benchmarks/latency_table.py --load             # the same with a busy loop on another core
    python benchmarks/latency_table.py --device cpu-all
    python benchmarks/latency_table.py --space ofa-mbv3   # with an estimator that ships: frontier networks too

Of cells, networks with an operation whose result leads nowhere are left out: a table prices what such a network does
not have, and no search wants it; `--idle` has them in. Where an estimator ships for the space, half of the networks
are of its frontier: those that a search would choose.
Prints our prediction beside the plain sum of isolated blocks, and beside MACs with a line fitted on the same
calibration networks. A shared machine changes its speed between the profile and the test, so the table's own
validation networks are timed again, interleaved with the new ones: `machine` is how much slower they are now, and
the columns `at its speed` are the errors once every prediction is multiplied by that one number. `disturbed` is how
much slower the machine was, at the median, than in its undisturbed moments. Each run is added to
benchmarks/results/latency_table.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

import deploynas as dn
from deploynas.accuracy.shipped_estimators import SHIPPED
from deploynas.costs import Costs
from deploynas.files import now
from deploynas.latency.correction import wholly_built
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import Measurement

RESULTS = Path(__file__).parent / "results" / "latency_table.json"


def main() -> None:
    arguments = _arguments()
    device, space = dn.Device.load(arguments.device), dn.Space.load(arguments.space)
    # ends with us, however we end: a load left over would be in every later measurement
    burn = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    burner = subprocess.Popen([sys.executable, "-c", burn]) if arguments.load else None
    try:
        started = time.perf_counter()
        table = dn.profile(device, space, seed=arguments.seed)
        profile_s = time.perf_counter() - started
        if arguments.save:
            table.save(arguments.save)
        rng = np.random.default_rng(10_000 + arguments.seed)
        fitted = {
            tuple(map(tuple, network.choices))
            for network in [*table.evidence.correction.networks, *table.evidence.validation.networks]
        }
        drawn = (space.sample(rng) for _ in range(4 * arguments.networks))
        networks = [a for a in drawn if a.choices not in fitted and (arguments.idle or wholly_built(a))]
        optimal = _frontier_networks(table, arguments.networks // 2)
        networks = [*networks[: arguments.networks - len(optimal)], *optimal]
        anchors = table.evidence.validation.networks
        together = [*networks, *(space.architecture(anchor.choices) for anchor in anchors)]
        # the truth deserves more visits; not more processes, or a low percentile would find a faster one
        careful = device.effort.model_copy(update={"visits": 4 * device.effort.visits})
        patient = device.model_copy(update={"effort": careful})
        test = measure_networks(patient, space, together, forms=table.forms, seed=1)
    finally:
        if burner:
            burner.kill()
    timed = np.array([measurement.latency_ms for measurement in test])
    measured, again = timed[: len(networks)], timed[len(networks) :]
    machine = float(np.median(again / [anchor.latency_ms for anchor in anchors]))
    rows = [_row("deploynas table", [table.predict(a) for a in networks], measured, machine)]
    if optimal:
        random = len(networks) - len(optimal)
        predicted = [table.predict(a) for a in networks]
        rows.append(_row("  its random networks", predicted[:random], measured[:random], machine))
        rows.append(_row("  its frontier networks", predicted[random:], measured[random:], machine))
    rows += [
        _row("plain sum of isolated blocks", _plain_sum(table, networks), measured, machine),
        _row("MACs, line fitted on the calibration networks", _macs(table, networks), measured, machine),
    ]
    run = {
        "date": now(),
        "command": " ".join(["python", *sys.argv]),
        "device": device.name,
        "space": space.name,
        "other_core": "busy" if arguments.load else "quiet",
        "profile_s": round(profile_s, 1),
        "machine": round(machine, 4),
        "slowdown": {"profile": _slowdown([*table.evidence.correction.networks, *anchors]), "test": _slowdown(test)},
        "networks": len(networks),
        "measured_ms": {"min": float(measured.min()), "max": float(measured.max())},
        "correction": table.evidence.correction.method,
        "held_out_error": table.evidence.correction.held_out_error,
        "hardware": hardware().processor,
        "versions": versions(),
        "load": load_average(),
        "predictors": rows,
    }
    _print(run)
    RESULTS.parent.mkdir(exist_ok=True)
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*runs, run], indent=1) + "\n")


def _frontier_networks(table: dn.LatencyTable, count: int) -> list[dn.Architecture]:
    """Of the estimator that ships for the space, spread over the frontier; none where none ships."""
    name = next((name for name, one in SHIPPED.items() if one.space == table.space.name), None)
    if name is None or not count:
        return []
    points = dn.frontier(table.space, dn.load_estimator(name), table).thin(count)
    return [point.architecture for point in points]


def _slowdown(measurements: Sequence[Measurement]) -> dict[str, float]:
    """How disturbed the machine was: by what factor it was slower than undisturbed, at the quartiles of the visits."""
    slow = np.concatenate([measurement.slowdown for measurement in measurements])
    return {f"p{q}": round(float(np.percentile(slow, q)), 3) for q in (25, 50, 75)}


def _row(name: str, predicted: list[float] | np.ndarray, measured: np.ndarray, machine: float) -> dict:
    error = np.abs(np.asarray(predicted) / measured - 1)
    at_its_speed = np.abs(machine * np.asarray(predicted) / measured - 1)
    return {
        "predictor": name,
        "within_5": float((error <= 0.05).mean()),
        "within_10": float((error <= 0.1).mean()),
        "within_5_at_its_speed": float((at_its_speed <= 0.05).mean()),
        "mean_error": float(error.mean()),
        "max_error": float(error.max()),
        "mean_error_at_its_speed": float(at_its_speed.mean()),
        "max_error_at_its_speed": float(at_its_speed.max()),
        "kendall_tau": float(kendalltau(predicted, measured).statistic),
    }


def _plain_sum(table: dn.LatencyTable, networks: list[dn.Architecture]) -> list[float]:
    """What a table without correction would say: undo ours."""
    weight = {"scale": 1.0, "constant": 0.0, "per_block": 0.0, "per_element": 0.0}
    weight |= table.evidence.correction.coefficients
    from deploynas.latency.correction import IsolatedTable

    isolated = IsolatedTable(table.space, 0.0, table.block_ms)
    predictions = []
    for network in networks:
        terms = isolated.terms(network)
        corrected = table.predict(network) - weight["constant"]
        extra = weight["per_block"] * terms["per_block"] + weight["per_element"] * terms["per_element"]
        predictions.append((corrected - extra) / weight["scale"])
    return predictions


def _macs(table: dn.LatencyTable, networks: list[dn.Architecture]) -> np.ndarray:
    space = table.space
    calibration = table.evidence.correction.networks
    known = [Costs.of(space, space.architecture(n.choices)).macs for n in calibration]
    slope, constant = np.polyfit(known, [n.latency_ms for n in calibration], 1)
    return constant + slope * np.array([Costs.of(space, a).macs for a in networks])


def _print(run: dict) -> None:
    print(
        f"\n{run['space']} on {run['device']}, other core {run['other_core']}: profile {run['profile_s']} s "
        f"(correction: {run['correction']}); {run['networks']} networks never fitted on, "
        f"{run['measured_ms']['min']:.2f} to {run['measured_ms']['max']:.2f} ms\n"
    )
    disturbed = {when: f"{100 * (slow['p50'] - 1):.0f} %" for when, slow in run["slowdown"].items()}
    print(f"disturbed: {disturbed['profile']} during the profile, {disturbed['test']} during the test")
    print(f"machine: {100 * (run['machine'] - 1):+.1f} % slower than during the profile, disturbances taken out\n")
    print(
        "| predictor | within 5 % | within 10 % | mean error | worst | mean at its speed | worst at its speed | tau |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in run["predictors"]:
        errors = [
            row[name] for name in ("mean_error", "max_error", "mean_error_at_its_speed", "max_error_at_its_speed")
        ]
        shares = [f"{100 * row[name]:.1f} %" for name in ("within_5", "within_10")]
        cells = " | ".join([*shares, *(f"{100 * error:.2f} %" for error in errors)])
        print(f"| {row['predictor']} | {cells} | {row['kendall_tau']:.3f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--space", default="imagenet")
    parser.add_argument("--networks", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="keep the table here")
    parser.add_argument("--load", action="store_true", help="keep another core busy meanwhile")
    parser.add_argument("--idle", action="store_true", help="cells with operations that lead nowhere, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
