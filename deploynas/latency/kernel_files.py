"""What Linux says of itself in /proc and /sys: small texts and numbers, each of which may not be there.

Whoever reads takes the folder that stands for `/`, so that another machine's files can be put in its place.
"""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str | None:
    """Without the newline or the zero byte at its end; None where there is nothing to read."""
    try:
        return path.read_bytes().decode(errors="replace").strip("\0\n\t ") or None
    except OSError:  # no such file; or one that only root may read, or whose hardware does not answer
        return None


def number_in(path: Path) -> int | None:
    text = text_of(path)
    try:
        return None if text is None else int(text)
    except ValueError:  # such as `<unsupported>`
        return None


def listed(text: str) -> list[int]:
    """CPUs as the kernel lists them: `0-3,8`."""
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.strip().partition("-")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1)
    return found


def ranges(numbers: list[int]) -> str:
    """The same backwards, for people."""
    pieces: list[list[int]] = []
    for number in sorted(set(numbers)):
        if pieces and number == pieces[-1][-1] + 1:
            pieces[-1][1:] = [number]
        else:
            pieces.append([number])
    return ",".join("-".join(map(str, piece)) for piece in pieces)


def numbered(folder: Path, name: str) -> dict[int, Path]:
    """The folders `name0`, `name1`, …, by their numbers in order."""
    found = {path.name.removeprefix(name): path for path in folder.glob(f"{name}[0-9]*")}
    return {int(number): found[number] for number in sorted(filter(str.isdigit, found), key=int)}
