"""The kinds of block, each a line: a file here, without torch, and one in `supernet/`, with it.

The key is the kind's name in timm's notation. Light kinds come first: where a stage mixes kinds, its heaviest
configuration is of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping

from deploynas.blocks.kind import BlockConfig, Kind
from deploynas.errors import InputError

KINDS: dict[str, Kind] = {
    "ir": Kind("inverted_residual", "InvertedResidual"),
    "er": Kind("fused_inverted_residual", "FusedInvertedResidual"),
}
DEFAULT_KIND = "ir"  # of files that do not say


def kind_of(code: str) -> Kind:
    if code not in KINDS:
        raise InputError(f"no kind of block `{code}`", hint=f"one of {', '.join(KINDS)}")
    return KINDS[code]


def weight(config: BlockConfig) -> tuple[float, ...]:
    """Orders configurations of several kinds, lightest first."""
    return list(KINDS).index(config.code), *config.levels()


def record_config(config: BlockConfig) -> dict[str, float | str]:
    """As plain data; the default kind goes without saying, as in files from before there were others."""
    kind: dict[str, float | str] = {} if config.code == DEFAULT_KIND else {"kind": config.code}
    return {**kind, **config.record()}


def read_config(record: Mapping[str, float | str]) -> BlockConfig:
    """The inverse of `record_config`."""
    code = str(record.get("kind", DEFAULT_KIND))
    levels = {key: value for key, value in record.items() if not isinstance(value, str)}
    return kind_of(code).config.from_record(levels)
