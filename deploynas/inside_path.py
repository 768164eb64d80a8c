"""A path that a file of a folder names: always inside that folder, whoever wrote the file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated

from pydantic import AfterValidator

from deploynas.errors import InputError
from deploynas.parsing import shown


def _inside(text: str) -> str:
    """On every system, so that a file which is harmless here is harmless elsewhere too."""
    windows = PureWindowsPath(text)
    climbs = ".." in windows.parts or ".." in PurePosixPath(text).parts
    if climbs or windows.drive or windows.root or not text.isprintable() or windows == PureWindowsPath():
        raise ValueError("be a path inside the folder")
    return text


InsidePath = Annotated[str, AfterValidator(_inside)]


def within(folder: Path, path: str) -> Path:
    """The file that a folder's file names; links that lead out of the folder are refused."""
    found = folder / path
    if not found.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: `{shown(path)}` is a link out of the folder")
    return found
