"""The pages of a bundle made again from its `report.json`, without breaking a signature behind anybody's back."""

from __future__ import annotations

from pathlib import Path

from deploynas.errors import InputError
from deploynas.export.bundle import MANIFEST, check_manifest, refresh_manifest
from deploynas.export.signature import is_signed, require_signer, sign_bundle
from deploynas.files import write_bytes
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import markdown


def write_pages(report: ReportFile, folder: Path, sign: str | None = None) -> list[str]:
    """Write what is not there yet, and say what that was; with a key, sign the bundle again.

    Pages that would change a signed bundle are refused without a key. A bundle that is to be signed must be as its
    manifest says: whoever signs vouches for files that this step did not make.
    """
    if sign:
        require_signer(sign)
        _require_unchanged(folder)
    pages = {"report.html": html(report).encode(), "report.md": markdown(report).encode()}
    changed = [name for name, page in pages.items() if not _holds(folder / name, page)]
    if changed and is_signed(folder) and not sign:
        raise InputError(
            f"{folder} is signed, and another {' and '.join(changed)} would break its signature",
            hint="`--out FOLDER` writes the pages elsewhere; `--sign KEY` signs the bundle again",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        write_bytes(folder / name, pages[name])
    if (folder / MANIFEST).exists() and not (is_signed(folder) and not sign):
        refresh_manifest(folder)
    if sign:
        sign_bundle(folder, sign)
    return changed


def _require_unchanged(folder: Path) -> None:
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is not a bundle: it has no {MANIFEST} to sign")
    check_manifest(folder)


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
