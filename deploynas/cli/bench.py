"""`deploynas bench`: time any ONNX file on a device, or several against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.options import device_option, out_option
from deploynas.errors import GateError

if TYPE_CHECKING:
    from deploynas.device import Device
    from deploynas.latency.bench import Benched, BenchResult, Case


@click.command("bench")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=click.Path(path_type=Path))
@device_option
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,C,H,W",
    help="Shape of a dynamic input; repeatable. The same name again: another case, timed beside the first.",
)
@click.option(
    "--input",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of an input that cannot be made up: one number for all elements, or all of them; repeatable.",
)
@click.option("--threads", metavar="1,2,4", help="Time with each of these numbers of threads.  [default: the device's]")
@click.option(
    "--max-latency-ms",
    type=click.FloatRange(0, min_open=True),
    help="The budget; exit code 3 if it is missed.  [default: the device file's]",
)
@click.option("--strict", is_flag=True, help="Exit code 3 also for a budget that is held undisturbed only.")
@click.option(
    "--runs",
    default=300,
    show_default=True,
    type=click.IntRange(10, 1_000_000),
    help="Timed inferences of each model, at least.",
)
@click.option("--top", default=40, show_default=True, type=click.IntRange(0), help="Rows of the breakdown to print.")
@out_option("Write the result as JSON, for `deploynas check`.")
@json_option  # fmt: skip
def command(
    models: tuple[Path, ...],
    device_name: str,
    shapes: tuple[str, ...],
    values: tuple[str, ...],
    threads: str | None,
    max_latency_ms: float | None,
    strict: bool,
    runs: int,
    top: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time ONNX files on a device: latency as it was and undisturbed, throughput, and where the time goes.

    Several files, or shapes, are timed interleaved in one run, and each is compared with the first.
    """
    from deploynas.device import Device
    from deploynas.files import write_json
    from deploynas.latency.bench import bench_together

    device = Device.load(device_name)
    cases = _cases(models, shapes, values)
    benched = list["Benched"]()
    for one in _with_threads(device, threads):
        title = f"timing {', '.join(model.name for model in models)} on {one.name}"
        title += f", {one.threads} thread(s)" if threads else ""
        with progress_bar(title) as on_progress:
            benched.append(bench_together(cases, one, runs=runs, on_progress=on_progress))
    results = [result for made in benched for result in made.results]
    ratios = [ratio for made in benched for ratio in made.ratios]
    single = len(results) == 1
    document = results[0].model_dump(by_alias=True) if single else _together(results, ratios)
    if as_json:
        print_json(document)
    elif single:
        _print(results[0], top)
    else:
        _print_together(results)
        for made in benched:
            at = f"{made.results[0].device.threads} thread(s): " if threads else ""
            for ratio in made.ratios:
                say(f"{at}{ratio.words()}")
    for result in results:
        if result.timing and not result.timing.stable:
            say(f"warning: {result.measurement.name}: {result.timing.stability}; close other programs, or more --runs")
    if out:
        write_json(out, document)
        say(f"wrote {out}")
    if single:
        again = f"deploynas bench {models[0]} --device {device_name} --out"
        say(f"next: {again} again.json && deploynas check {out} again.json" if out else f"next: {again} bench.json")
    budget_ms = max_latency_ms if max_latency_ms is not None else device.budgets.latency_ms
    if budget_ms is not None:
        _require(results, budget_ms, device, strict)


def _cases(models: tuple[Path, ...], shapes: tuple[str, ...], values: tuple[str, ...]) -> list[Case]:
    """Every model with every set of shapes: a name that is given again begins a further set."""
    from deploynas.latency.bench import Case

    sets: list[dict[str, tuple[int, ...]]] = [{}]
    for text in shapes:
        name, shape = _named(text, "--shape", "input=1,3,224,224", int)
        if name in sets[-1]:
            sets.append(dict(sets[-1]))
        sets[-1][name] = tuple(int(size) for size in shape)
    given = dict(_named(text, "--input", "sr=16000", float) for text in values)
    return [Case(model, chosen, given) for model in models for chosen in sets]


def _named(text: str, option: str, example: str, kind: type) -> tuple[str, list[float]]:
    name, _, numbers = text.rpartition("=")
    try:
        found = [kind(number) for number in numbers.split(",")]
    except ValueError:
        found = []
    if not name or not found or (kind is int and min(found) < 1):
        raise click.BadParameter(f"`{text}` is not like `{example}`", param_hint=option)
    return name, found


def _with_threads(device: Device, threads: str | None) -> list[Device]:
    from deploynas.device import Device

    if threads is None:
        return [device]
    try:
        counts = [int(count) for count in threads.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise click.BadParameter(f"`{threads}` is not like `1,2,4`", param_hint="--threads")
    return [Device.model_validate({**device.describe(), "threads": count}) for count in counts]


def _together(results: list[BenchResult], ratios: list) -> dict:
    return {
        "schema": "deploynas/bench-comparison",
        "schema_version": 1,
        "results": [result.model_dump(by_alias=True) for result in results],
        "ratios": [ratio.model_dump() for ratio in ratios],
    }


def _print(result: BenchResult, top: int) -> None:
    from deploynas.report.numbers import size
    from deploynas.timing import HOW

    timing = result.timing
    assert timing, "it was measured just now"
    clock, quiet, loading = timing.clock, timing.undisturbed, timing.loading
    low, high = quiet.interval_ms
    rows = [
        ("undisturbed", f"{quiet.latency_ms:.4g} ms ({low:.4g} to {high:.4g})"),
        ("on this machine as it was, p50", f"{clock.p50_ms:.4g} ms"),
        ("p90", f"{clock.p90_ms:.4g} ms"),
        ("p99", f"{clock.p99_ms:.4g} ms"),
        ("mean", f"{clock.mean_ms:.4g} ms"),
        ("spread, p10 to p90", f"{100 * clock.spread:.0f} % of p50"),
        (f"throughput, batch {result.device.batch}, from the mean", f"{result.throughput_per_s:.1f} inputs/s"),
        ("inferences timed", f"{clock.inferences} in {clock.processes} processes, {clock.warmups} warm-ups each time"),
        ("measurement", timing.stability),
    ]
    if loading:
        if loading.call_ms is not None:
            rows.append(("`session.run` with arrays, from Python, adds", f"{loading.call_ms:.2g} ms"))
        rows += [
            ("loading the session", f"{loading.load_ms:.4g} ms"),
            ("first inference", f"{loading.first_ms:.4g} ms"),
            ("peak memory", f"{size(loading.peak_memory_bytes)}, of it {size(loading.model_memory_bytes)} the model"),
        ]
    print_table([f"{result.model} on {result.device.name}", ""], rows)
    say(f"undisturbed: {HOW[quiet.how]}; in brackets the 95 % interval")
    shares = result.breakdown[:top]
    if shares:
        kind = "block" if "/" in shares[-1].name or shares[-1].name == "head" else "operator"
        print_table(
            [f"{kind}, of the undisturbed whole", "ms", "share"],
            [(share.name, f"{share.latency_ms:.4f}", f"{100 * share.share:.1f} %") for share in shares],
        )
        hidden = len(result.breakdown) - len(shares)
        more = f"; {hidden} more are not shown" if hidden else ""
        say(
            f"shares are from the runtime's profiler, which made it {result.profiler_slowdown or 1:.1f} times slower; "
            f"what it costs at each node is taken out{more}"
        )


def _print_together(results: list[BenchResult]) -> None:
    rows = []
    for result in results:
        timing = result.timing
        assert timing, "it was measured just now"
        clock, quiet = timing.clock, timing.undisturbed
        rows.append(
            (
                result.measurement.name,
                str(result.device.threads),
                f"{quiet.latency_ms:.4g} ({quiet.interval_ms[0]:.4g} to {quiet.interval_ms[1]:.4g})",
                f"{clock.p50_ms:.4g}",
                f"{clock.p90_ms:.4g}",
                f"{clock.mean_ms:.4g}",
                f"{result.throughput_per_s:.1f}",
            )
        )
    columns = ("model", "threads", "undisturbed ms (95 %)", "as it was: p50", "p90", "mean", "inputs/s")
    print_table(columns, rows)


def _require(results: list[BenchResult], budget_ms: float, device: Device, strict: bool) -> None:
    """The gate: say how each stands to the budget, and fail if one misses it."""
    from deploynas.outcome import outcome_of, outcome_words

    failed = []
    for result in results:
        assert result.timing, "it was measured just now"
        name, outcome = result.measurement.name, outcome_of(result.timing, budget_ms, device.budget)
        say(f"{name}: {outcome_words(result.timing, budget_ms, device.budget)}")
        if outcome == "missed" or (strict and outcome == "held undisturbed"):
            failed.append(name)
    if failed:
        raise GateError(f"the budget of {budget_ms:.4g} ms is not kept by {', '.join(failed)}")
