"""`deploynas profile --verify`: a gate for tables. Exit code 3 if a table no longer holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.cli.console import print_json, print_table, progress_bar, say
from deploynas.errors import GateError

if TYPE_CHECKING:
    from deploynas.device import Device


def verify_table(path: Path, device: Device | None, as_json: bool) -> None:
    """On the device that the table was profiled on."""
    from deploynas.latency.table import LatencyTable
    from deploynas.latency.verify import verify

    table = LatencyTable.load(path)
    with progress_bar(f"timing networks of {path} again") as on_progress:
        found = verify(table, device=device, on_progress=on_progress)
    if as_json:
        print_json(found.model_dump())
    else:
        print_table(
            ["network of the table", "predicted ms", "measured then", "now", "change"],
            [
                (
                    f"{i + 1}",
                    f"{one.predicted_ms:.4g}",
                    f"{one.then_ms:.4g}",
                    f"{one.now_ms:.4g}",
                    f"{100 * (one.now_ms / one.then_ms - 1):+.1f} %",
                )
                for i, one in enumerate(found.networks)
            ],
        )
    for note in found.notes:
        say(f"note: {note}")
    change = f"{100 * found.change:+.1f} % ± {100 * found.uncertainty:.1f}"
    say(
        f"the table {found.verdict if found.verdict != 'inconclusive' else 'may or may not hold'}: networks take "
        f"{change} (median, 95 %) against when it was measured; its predictions are off by "
        f"{100 * found.prediction_error:.1f} % in the mean"
    )
    if found.verdict == "inconclusive":
        say("hint: measure again at a quieter moment")
    if found.verdict == "does not hold":
        raise GateError(f"{path} no longer holds: {change}, more than {100 * found.threshold:g} %",
                        hint="`deploynas profile --force` measures it again")  # fmt: skip
