"""The idx format of MNIST and its relatives: two zeros, a type, the number of dimensions, sizes, bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from deploynas.errors import InputError

UNSIGNED_BYTE = 8
MOST_DIMENSIONS = 4  # images, channels, rows, columns
LARGEST = 1 << 29  # bytes; MNIST's largest relative, EMNIST, has a quarter of that
GZIP = b"\x1f\x8b"


def read_idx(path: Path) -> np.ndarray:
    """An array of unsigned bytes; plain or gzipped."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            content = _unpacked(file) if packed else file
            shape = _shape(content, path)
            size = math.prod(shape)
            found = content.read(min(size, LARGEST) + 1)  # no more, however much is packed into a small file
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if size > LARGEST:
        raise InputError(f"{path}: of shape {shape}, more than {LARGEST:,} bytes")
    if len(found) != size:
        raise InputError(f"{path}: cut off, or longer than its shape {shape} says")
    return np.frombuffer(found, np.uint8).reshape(shape)


def _unpacked(file: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


def _shape(content: BinaryIO, path: Path) -> tuple[int, ...]:
    head = content.read(4)
    if len(head) < 4 or head[:3] != bytes([0, 0, UNSIGNED_BYTE]) or not 1 <= head[3] <= MOST_DIMENSIONS:
        raise InputError(f"{path}: not an idx file of bytes")
    sizes = content.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise InputError(f"{path}: cut off")
    return struct.unpack(f">{head[3]}I", sizes)
