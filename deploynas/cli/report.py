"""`deploynas report`: the pages of a bundle, made again from the JSON in it."""

from __future__ import annotations

from pathlib import Path

import click

from deploynas.cli.console import json_option, print_json, say
from deploynas.cli.options import out_option


@click.command("report")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE|REPORT.json...")
@out_option("Folder.  [default: where the JSON lies]", folder=True)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown on stdout, for CI.")
@json_option
def command(bundles: tuple[Path, ...], out: Path | None, as_markdown: bool, as_json: bool) -> None:
    """Write report.html and report.md from report.json; or print them."""
    from deploynas.export.bundle import MANIFEST, refresh_manifest
    from deploynas.files import write_bytes
    from deploynas.report.document import ReportFile
    from deploynas.report.html import html
    from deploynas.report.markdown import markdown

    reports = [(path, ReportFile.load(path)) for path in bundles]
    if as_json:
        print_json([report.model_dump(by_alias=True, mode="json") for _, report in reports])
        return
    if as_markdown:
        click.echo("\n".join(markdown(report) for _, report in reports))
        return
    for path, report in reports:
        folder = path if path.is_dir() else path.parent
        if out:
            folder = out / report.device.name if len(reports) > 1 else out
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / "report.html", html(report).encode())
        write_bytes(folder / "report.md", markdown(report).encode())
        if (folder / MANIFEST).exists():
            refresh_manifest(folder)
        say(f"wrote {folder}/report.html, {folder}/report.md")
