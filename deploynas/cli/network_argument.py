"""How a person names one network of a space on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.space import Architecture, Space

NETWORK_HELP = "timm's notation, FILE or FILE:N of a search result (its N-th network), `smallest` or `heaviest`."


def read_network(text: str, space: Space) -> Architecture:
    """See NETWORK_HELP; a file without a number means its first network."""
    from deploynas.space import Architecture

    if text == "smallest":
        return space.smallest()
    if text == "heaviest":
        return space.heaviest()
    named = re.fullmatch(r"(.+\.json)(?::(\d+))?", text)
    return _of_file(Path(named[1]), int(named[2] or 1), space) if named else Architecture.parse(text, space)


def _of_file(path: Path, number: int, space: Space) -> Architecture:
    from deploynas.search.result_file import SearchFile

    file = SearchFile.load(path)
    space.require_hash(file.space_hash, f"{path}: its networks")
    records = file.networks or [record.own for record in file.each] or file.frontier
    if not 1 <= number <= len(records):
        raise InputError(f"{path} has {len(records)} networks, there is no number {number}")
    return space.architecture(records[number - 1].choices)
