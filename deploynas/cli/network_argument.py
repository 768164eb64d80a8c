"""How a person names one network of a space on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.space import Architecture, Space

NETWORK_HELP = "timm's notation, FILE or FILE:N of a search result (its N-th network), `smallest` or `heaviest`."


def read_network(text: str, space: Space) -> Architecture:
    """See NETWORK_HELP; a file without a number means its first network."""
    from deploynas.search.result_file import SearchFile

    if text == "smallest":
        return space.smallest()
    if text == "heaviest":
        return space.heaviest()
    named = re.fullmatch(r"(.+\.json)(?::(\d+))?", text)
    if named is None:
        return _parsed(text, space)
    file = SearchFile.load(named[1])
    space.require_hash(file.space_hash, f"{named[1]}: its networks")
    return file.network(int(named[2] or 1), named[1])


def _parsed(text: str, space: Space) -> Architecture:
    from deploynas.space import Architecture

    try:
        return Architecture.parse(text, space)
    except InputError as error:
        raise InputError(error.message, hint=error.hint or f"a network is {NETWORK_HELP}") from error
