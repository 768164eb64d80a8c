"""`deploynas bench`: time any ONNX file on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.options import device_option, out_option

if TYPE_CHECKING:
    from deploynas.latency.bench import BenchResult


@click.command("bench")
@click.argument("model", type=click.Path(path_type=Path))
@device_option
@click.option("--shape", "shapes", multiple=True, metavar="NAME=N,C,H,W", help="Shape of a dynamic input; repeatable.")
@click.option("--runs", default=300, show_default=True, type=click.IntRange(10, 1_000_000), help="Timed inferences.")
@click.option("--top", default=40, show_default=True, type=click.IntRange(0), help="Rows of the breakdown to print.")
@out_option("Write the result as JSON, for `deploynas check`.")
@json_option
def command(
    model: Path, device_name: str, shapes: tuple[str, ...], runs: int, top: int, out: Path | None, as_json: bool
) -> None:
    """Time an ONNX file on a device: percentiles, throughput, and where the time goes."""
    from deploynas.device import Device
    from deploynas.files import write_json
    from deploynas.latency.bench import bench

    device = Device.load(device_name)
    with progress_bar(f"timing {model.name} on {device.name}") as on_progress:
        result = bench(model, device, shapes=_parse_shapes(shapes), runs=runs, on_progress=on_progress)
    document = result.model_dump(by_alias=True)
    if as_json:
        print_json(document)
    else:
        _print(result, top)
    again = f"deploynas bench {model} --device {device_name} --out"
    if out:
        write_json(out, document)
        say(f"wrote {out}")
        say(f"next: {again} again.json && deploynas check {out} again.json")
    else:
        say(f"next: {again} bench.json")


def _print(result: BenchResult, top: int) -> None:
    batch = result.device["batch"]
    measured = result.measurement
    rows = [
        (
            f"latency ({result.device['statistic']}, machine undisturbed)",
            f"{measured.latency_ms:.3f} ms ± {100 * measured.relative_error:.1f} %",
        ),
        ("machine slower than undisturbed", f"{100 * (measured.disturbance - 1):.0f} %"),
        *((f"{name} as it was", f"{value:.3f} ms") for name, value in result.percentiles_ms.items()),
        ("mean as it was", f"{result.mean_ms:.3f} ms"),
        (f"throughput, batch {batch}", f"{result.throughput_per_s:.1f} inputs/s"),
        ("inferences timed", str(sum(len(visit) for visit in measured.samples_ms))),
    ]
    print_table([f"{result.model} on {result.device['name']}", ""], rows)
    shares = result.breakdown[:top]
    if shares:
        kind = "block" if "/" in shares[-1].name or shares[-1].name == "head" else "operator"
        print_table(
            [f"{kind} (runtime's profiler)", "ms", "share"],
            [(share.name, f"{share.latency_ms:.3f}", f"{100 * share.share:.1f} %") for share in shares],
        )
    if not measured.stable:
        say("warning: the samples disagree by more than the device file allows; close other programs and repeat")


def _parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shapes[name] = ()
        if not name or not shapes[name] or min(shapes[name]) < 1:
            raise click.BadParameter(f"`{text}` is not like `input=1,3,224,224`", param_hint="--shape")
    return shapes
