"""Files that are changed behind a command's back, and how one sees that it has noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_checks import sha256
from fault_commands import Command

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Change:
    file: str  # the first that this pattern finds
    edit: Edit
    after_the_end: bool = False  # a result, which has to be made again; else something that is read

    def make(self, work: Path) -> str:
        """Its SHA-256 afterwards."""
        path = self._path(work)
        self.edit(path)
        return sha256(path)

    def unnoticed(self, work: Path, changed: str, quiet: Path, command: Command) -> str | None:
        """Of a command that has ended well: why its result is not to be believed."""
        if self.after_the_end:
            return "left as it was changed" if sha256(self._path(work)) == changed else None
        return None if command.differences(quiet, work) else "the result is that of the file as it was"

    def _path(self, work: Path) -> Path:
        return next(path for path in sorted(work.glob(self.file)) if path.is_file())


def wider(path: Path) -> None:
    """A space with other widths."""
    path.write_text(path.read_text().replace("out: 16", "out: 24"))


def longer(path: Path) -> None:
    """A device that measures more; what its latency is does not change, how much is known of it does."""
    path.write_text(path.read_text().replace("part_visits: 12", "part_visits: 14"))


def flipped(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def darker(path: Path) -> None:
    """Another image under the same name."""
    from PIL import Image

    with Image.open(path) as image:
        changed = image.point(lambda value: value // 2)
    changed.save(path)


def nudged(path: Path) -> None:
    """A JSON document that still reads, with its first long number changed."""
    text = path.read_text()
    json.loads(text)
    at = next(i for i, letter in enumerate(text) if letter == "." and text[i + 1 : i + 6].isdigit())
    digit = "7" if text[at + 1] != "7" else "3"
    path.write_text(text[: at + 1] + digit + text[at + 2 :])


IMAGE = "small/*/*.png"
CHANGES: dict[str, tuple[Change, ...]] = {
    "train": (
        Change("mini.yaml", wider),
        Change(IMAGE, darker),
        Change("run/supernet/w_h.safetensors", flipped, True),
        Change("run/supernet/w_star.safetensors", flipped, True),
    ),
    "profile": (Change("mini.yaml", wider), Change("quick.yaml", longer), Change("table.json", cut, True)),
    "estimate": (
        Change("run/supernet/w_star.safetensors", flipped),
        Change(IMAGE, darker),
        Change("run/samples/*/*.npz", cut, True),
        Change("run/estimator.json", nudged, True),
    ),
    "finetune": (
        Change("run/supernet/w_star.safetensors", flipped),
        Change("found.json", nudged),
        Change(IMAGE, darker),
        Change("tuned/network.safetensors", flipped, True),
    ),
    "prune": (Change("tuned/network.safetensors", flipped), Change(IMAGE, darker)),
    "export": (
        Change("tuned/network.safetensors", flipped),
        Change("bundles/quick/model.onnx", flipped, True),
    ),
    "run": (
        Change("mini.yaml", wider),
        Change(IMAGE, darker),
        Change("all/supernet/w_star.safetensors", flipped, True),
        Change("all/devices/quick/table.json", nudged, True),
        Change("all/estimator.json", nudged, True),
        Change("all/devices/quick/search.json", nudged, True),
        Change("all/devices/quick/networks/*/network.safetensors", flipped, True),
        Change("all/bundles/quick/model.onnx", flipped, True),
        Change("all/bundles/quick/report.html", cut, True),
    ),
}
