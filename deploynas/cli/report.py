"""`deploynas report`: the pages of a bundle, made again from the JSON in it; its signature, checked or made."""

from __future__ import annotations

from pathlib import Path

import click

from deploynas.cli.console import json_option, print_json, say
from deploynas.cli.options import out_option


@click.command("report")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE|REPORT.json...")
@out_option("Folder.  [default: where the JSON lies]", folder=True)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown on stdout, for CI.")
@click.option(
    "--verify",
    "public_key",
    type=click.Path(path_type=Path),
    metavar="PUBLIC_KEY",
    help="Check the signature first; exit code 3 if there is none or it does not hold. Alone, nothing is written.",
)
@click.option("--sign", type=click.Path(), metavar="KEY", help="Sign the bundle, as `export --sign` does.")
@json_option
def command(
    bundles: tuple[Path, ...], out: Path | None, as_markdown: bool, public_key: Path | None, sign: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Write report.html and report.md from report.json; or print them; or check who signed the bundle."""
    from deploynas.errors import InputError
    from deploynas.pipeline.report_pages import write_pages
    from deploynas.report.document import ReportFile
    from deploynas.report.markdown import markdown

    if sign and (public_key or as_json or as_markdown or out):
        raise InputError("`--sign` signs the bundle where it lies: it goes without --verify, --out, --json, --markdown")
    if public_key:
        for path in bundles:
            _verify(path if path.is_dir() else path.parent, public_key)
        if not (out or as_json or as_markdown):
            return
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
        written = write_pages(report, folder, sign)
        pages = ", ".join(f"{folder}/{name}" for name in written)
        say(f"wrote {pages}" if written else f"{folder}: its pages are as they would be written")
        if sign:
            say(f"signed {folder} with {sign}")


def _verify(folder: Path, public_key: Path) -> None:
    from deploynas.export.signature import verify_bundle

    found = verify_bundle(folder, public_key)
    model = f", {found.model} to deploy among them" if found.model else ""
    say(f"{folder} is as the holder of {public_key} signed it: {found.files} files{model}; key sha256:{found.key}")
