"""Setuptools' own build, whose archives are then written again, so that a tree gives the same bytes everywhere.

Setuptools leaves in a source archive when each file was written and by whom, and in both archives the permissions of
whoever cloned. Every time becomes SOURCE_DATE_EPOCH, or where that is not set the earliest that a zip file
can hold.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  the hooks that need no change: they are looked up in this module

EARLIEST = 315532800  # 1980-01-01, UTC
EXECUTABLE, FILE = 0o755, 0o644
# The source archive is what builds the wheel. Half of the tests would come along by themselves, without what they need.
TEMPLATE, LISTED = Path("MANIFEST.in"), "include .ci/build_backend/*.py CHANGELOG.md\nprune tests\n"


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    TEMPLATE.write_text(LISTED)  # setuptools looks for it beside pyproject.toml and nowhere else
    try:
        name = build_meta.build_sdist(sdist_directory, config_settings)
    finally:
        TEMPLATE.unlink()
    rewrite_tar(Path(sdist_directory, name))
    return name


def build_wheel(
    wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None
) -> str:
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    rewrite_zip(Path(wheel_directory, name))
    return name


def rewrite_tar(path: Path) -> None:
    written = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            same = tarfile.TarInfo(member.name)  # neither owner nor group, nor anything else of this machine
            same.type, same.size, same.mtime = member.type, member.size, build_time()
            same.mode = EXECUTABLE if member.isdir() else FILE
            new.addfile(same, old.extractfile(member) if member.isfile() else None)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=build_time()) as packed:
        packed.write(written.getvalue())


def rewrite_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        contents = [(name, old.read(name)) for name in sorted(old.namelist(), key=description_last)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in contents:
            same = zipfile.ZipInfo(name, time.gmtime(build_time())[:6])
            same.external_attr, same.create_system = (0o100000 | FILE) << 16, 3  # a file, written on a Unix
            new.writestr(same, content, zipfile.ZIP_DEFLATED)


def description_last(name: str) -> tuple[bool, str]:
    """The format of wheels wants what describes the package at the end, where it can be changed by itself."""
    return ".dist-info/" in name, name


def build_time() -> int:
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)), EARLIEST)
