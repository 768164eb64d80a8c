"""`deploynas check`: a gate for CI. Exit code 3 for a significant slowdown, and for entries that cannot be compared."""

from __future__ import annotations

from pathlib import Path

import click

from deploynas.cli.console import json_option, print_json, print_table, say
from deploynas.cli.options import out_option


@click.command("check")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--threshold", default=0.1, show_default=True, type=float, help="Slowdown that counts, as a fraction of BASE."
)
@click.option("--any-hardware", is_flag=True, help="Compare results of different machines.")
@click.option("--strict", is_flag=True, help="Fail too if noise makes the answer inconclusive.")
@click.option("--rows", default=40, show_default=True, type=click.IntRange(1), help="Entries to print at most.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write a Markdown report.")
@out_option("Also write the result as JSON.")
@json_option
def command(
    base: Path,
    new: Path,
    threshold: float,
    any_hardware: bool,
    strict: bool,
    rows: int,
    markdown: Path | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Compare two latency tables or two bench results.

    Fails (exit code 3) when NEW is slower than BASE by more than the threshold and significantly so, and when an
    entry is in one of the two only.
    """
    from deploynas.files import write_bytes, write_json
    from deploynas.latency.comparison import LEGEND, compare

    result = compare(base, new, threshold=threshold, any_hardware=any_hardware)
    document = result.model_dump(by_alias=True)
    if markdown:
        write_bytes(markdown, (result.markdown() + "\n").encode())
        say(f"wrote {markdown}")
    if out:
        write_json(out, document)
        say(f"wrote {out}")
    if as_json:
        print_json(document)
    else:
        worst = sorted(result.rows, key=lambda row: (row.verdict == "same", -row.change))
        print_table(
            ["entry", "base ms", "new ms", "change", "p", "verdict"],
            [
                (
                    row.name,
                    f"{row.base_ms:.3f}",
                    f"{row.new_ms:.3f}",
                    f"{100 * row.change:+.1f} % ± {100 * row.uncertainty:.1f}",
                    f"{row.p_value:.2g}",
                    row.verdict,
                )
                for row in worst[:rows]
            ],
        )
        if len(worst) > rows:
            say(f"{len(worst) - rows} more entries are not shown (`--rows {len(worst)}` shows all)")
        counts = {v: sum(row.verdict == v for row in result.rows) for v in ("slower", "inconclusive", "same", "faster")}
        say(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
        say(LEGEND)
    for note in result.notes:
        say(f"note: {note}")
    say(f"verdict: {result.verdict} (threshold {100 * threshold:g} %)")
    for reason in [*result.incomplete, *result.reasons]:
        say(f"inconclusive: {reason}")
    failed = result.verdict == "slower" or result.incomplete or (strict and result.verdict == "inconclusive")
    return 3 if failed else 0
