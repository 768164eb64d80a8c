"""The idx format of MNIST and its relatives: two zeros, a type, the number of dimensions, sizes, bytes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from deploynas.errors import InputError

UNSIGNED_BYTE = 8


def read_idx(path: Path) -> np.ndarray:
    """An array of unsigned bytes; plain or gzipped."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise InputError(f"{path}: not an idx file of bytes")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) != header + int(np.prod(shape)):
        raise InputError(f"{path}: cut off, {len(content) - header} bytes for shape {shape}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
