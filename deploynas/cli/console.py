"""Talking to people on stderr, and handing results over on stdout, as a table or as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import click

from deploynas.progress import OnProgress

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")


def say(message: str) -> None:
    """A line for people."""
    click.echo(message, err=True)


def seconds_since_start() -> float:
    """How long a person has waited: since the process began, imports included."""
    import psutil

    return time.time() - psutil.Process().create_time()


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None, *, words: Collection[str] = ()
) -> None:
    """A table on stdout. Columns are right-aligned, as numbers should be; the first and those of `words` are not."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 or column in words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    # off a terminal nothing may be cut or folded: a pipe has no width
    width = None if sys.stdout.isatty() else 240
    Console(width=width, highlight=False, no_color="NO_COLOR" in os.environ or None).print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[OnProgress]:
    """A bar with the time left on a terminal; off one, a plain line every ten seconds."""
    with progress_bars([title]) as [on_progress]:
        yield on_progress


@contextmanager
def progress_bars(titles: Sequence[str]) -> Iterator[list[OnProgress]]:
    """A bar for each of several things that are done at the same time."""
    if not sys.stderr.isatty():
        yield [_plain_lines(title) for title in titles]
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def reporter(title: str) -> OnProgress:
            task = bar.add_task(title, total=1.0, what="")
            return lambda fraction, what: bar.update(task, completed=fraction, what=what)

        yield [reporter(title) for title in titles]


def _plain_lines(title: str) -> OnProgress:
    start = last = time.monotonic()

    def report(fraction: float, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < 10:
            return
        last = now
        left = (now - start) * (1 - fraction) / fraction if fraction > 0.01 else None
        ending = f", about {left:.0f} s left" if left is not None else ""
        say(f"{title}: {100 * fraction:.0f} %, {what}{ending}")

    return report
