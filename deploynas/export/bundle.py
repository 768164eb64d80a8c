"""The folder that is handed over: all of it or nothing, every file named by its SHA-256 in `manifest.json`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from deploynas import __version__
from deploynas.device import RecordedDevice
from deploynas.errors import InputError
from deploynas.files import move_into_place, now, parse_json, sha256_of, write_json
from deploynas.inside_path import InsidePath, within
from deploynas.latency.session_record import SessionRecord
from deploynas.provenance import DataRecord, Origin
from deploynas.recorded import Count

MANIFEST, SIGNATURE = "manifest.json", "model.sig"


class FileHash(BaseModel):
    path: InsidePath
    sha256: str
    size_bytes: Count


class ManifestAbout(BaseModel):
    """What the bundle is for."""

    device: RecordedDevice | None = None
    data: DataRecord | None = None
    session: SessionRecord | None = None  # how the measured sessions were opened; None in bundles of earlier versions


class ManifestFile(BaseModel):
    schema_: Literal["deploynas/manifest"] = Field(default="deploynas/manifest", alias="schema")
    schema_version: int = 1
    files: list[FileHash]
    model: InsidePath | None = None  # which of the files to deploy; None in bundles of earlier versions
    lineage: dict[str, Origin | None]  # table, estimator, search, supernet, imported, network
    about: ManifestAbout = ManifestAbout()
    deploynas: str = ""
    created: str = ""


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder to fill beside the real one, which it replaces at the end; on failure nothing is left of it."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise InputError(f"{folder} is there and is not a bundle", hint="choose another --out")
    new, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    stage = new / folder.name  # a signature names the folder that it is of
    stage.mkdir(parents=True)
    try:
        yield stage
        if folder.exists():
            move_into_place(folder, old)
        try:
            move_into_place(stage, folder)
        except BaseException:
            if old.exists():  # better the earlier bundle than none
                move_into_place(old, folder)
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def write_manifest(
    folder: Path, lineage: dict[str, Origin | None], about: ManifestAbout, model: str | None = None
) -> None:
    """List everything in the folder but a signature, which is about the list too; call it last."""
    manifest = ManifestFile(
        files=_listed(folder), model=model, lineage=lineage, about=about, deploynas=__version__, created=now()
    )
    write_json(folder / MANIFEST, manifest.model_dump(by_alias=True, mode="json"))


def refresh_manifest(folder: Path) -> None:
    """After pages were written again: list what has changed, if anything has."""
    manifest = parse_json(folder / MANIFEST, ManifestFile)
    if manifest.files != _listed(folder):
        write_manifest(folder, manifest.lineage, manifest.about, manifest.model)


def _listed(folder: Path) -> list[FileHash]:
    return [
        FileHash(path=path.relative_to(folder).as_posix(), sha256=sha256_of(path), size_bytes=path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in (folder / MANIFEST, folder / SIGNATURE)
    ]


def check_manifest(folder: Path) -> ManifestFile:
    """Read a bundle's manifest and refuse a bundle whose files are not the ones it lists."""
    manifest = parse_json(folder / MANIFEST, ManifestFile)
    wrong = [
        file.path
        for file in manifest.files
        if not within(folder, file.path).is_file() or sha256_of(folder / file.path) != file.sha256
    ]
    if wrong:
        raise InputError(f"{folder}: {', '.join(wrong)} changed since the bundle was made", hint="export it again")
    return manifest
