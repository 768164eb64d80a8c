"""What must be true whenever a command has ended in whatever way: no file under its final name is half a file, and
nobody holds a lock. And when is one result the same as another.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from safetensors import safe_open

from deploynas.export.bundle import MANIFEST, check_manifest
from deploynas.files import TEMPORARY
from deploynas.one_writer import LOCK
from deploynas.supernet.checkpoint_file import CheckpointFile

STAGE = re.compile(r"\..*\.\d+\.(new|old)")
# of a run, not of its result: when, how long, how fast, how busy
OF_THE_RUN = {"created", "date", "duration_s", "images_per_s", "deploynas", "resumed", "data_place"}


def half_written(folder: Path) -> list[str]:
    """Files under final names that are not whole."""
    found = []
    for path in visible(folder):
        try:
            _require_whole(path)
        except Exception as error:
            found.append(f"{path.relative_to(folder)}: {str(error).splitlines()[0][:100]}")
    return found


def left_over(folder: Path) -> list[str]:
    """What nobody needs any more, after a command has run to its end."""
    names = list(folder.rglob(".*"))
    wrong = [p for p in names if p.name.endswith((TEMPORARY, LOCK)) or STAGE.fullmatch(p.name)]
    wrong += [*folder.rglob("*.partial.jsonl"), *folder.rglob("state*.safetensors"), *folder.rglob("state.json")]
    return [str(path.relative_to(folder)) for path in wrong]


def locked(folder: Path) -> list[str]:
    """Locks that somebody holds."""
    held = []
    for path in folder.rglob(f".*{LOCK.removeprefix('.')}"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(str(path.relative_to(folder)))
    return held


def visible(folder: Path) -> Iterator[Path]:
    """Files whose name, and that of every folder on the way, is a final one."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def same_bytes(one: Path, other: Path) -> list[str]:
    if not other.exists():
        return [f"{other.name}: is missing"]
    return [] if sha256(one) == sha256(other) else [f"{one.name}: other bytes"]


def same_graph(one: Path, other: Path) -> list[str]:
    """Of two ONNX files, but for what they say about themselves: when they were written is part of that."""
    graphs = [onnx.load(path).graph for path in (one, other)]
    first, second = (
        {part.name: part.SerializeToString(deterministic=True) for part in (*graph.node, *graph.initializer)}
        for graph in graphs
    )
    unlike = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    return [f"{one.name}: {len(unlike)} unlike parts, {unlike[0]} is the first"] if unlike else []


def same_document(one: Path, other: Path) -> list[str]:
    """But for what is of the run."""
    if not other.exists():
        return [f"{other.name}: is missing"]
    first, second = (_without_the_run(json.loads(path.read_text())) for path in (one, other))
    return [] if first == second else [f"{one.name}: another document, at {_where(first, second)}"]


def same_records(one: Path, other: Path) -> list[str]:
    """Lines of JSON: none twice, none missing."""
    first, second = (
        [_without_the_run(json.loads(line)) for line in path.read_text().splitlines()] for path in (one, other)
    )
    return [] if first == second else [f"{one.name}: {len(second)} records, not the same {len(first)}"]


def _require_whole(path: Path) -> None:
    if path.name == MANIFEST:
        check_manifest(path.parent)
    elif path.suffix == ".json":
        document = json.loads(path.read_text())
        if str(document.get("schema", "")).startswith("deploynas/"):
            assert isinstance(document.get("schema_version"), int), "no schema_version"
    elif path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            assert list(file.keys()), "no tensors"
        _require_pair(path)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            assert all(file[name] is not None for name in file.files)
    elif path.suffix == ".onnx":
        onnx.checker.check_model(onnx.load(path))
    elif path.suffix == ".jsonl":
        *whole, _ = path.read_bytes().split(b"\n")  # the last line may be cut, its reader knows
        for line in whole:
            json.loads(line)


def _require_pair(path: Path) -> None:
    """Weights and the file that describes them, where it is there: `state-*` have none."""
    about = path.with_suffix(".json")
    if about.exists():
        described = CheckpointFile.model_validate_json(about.read_text())
        assert described.weights_sha256 == sha256(path), "not the weights that the file beside it describes"


def _without_the_run(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_the_run(inner) for key, inner in value.items() if key not in OF_THE_RUN}
    return [_without_the_run(inner) for inner in value] if isinstance(value, list) else value


def _where(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(set(other) - set(one))]:
            if one.get(key) != other.get(key):
                return f"{key}.{_where(one.get(key), other.get(key))}"
    return ""
