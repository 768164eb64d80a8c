"""A bundle on disk: its files are those that its manifest lists, and what its report promises is read from it.

Nothing of a bundle runs before its hash has been compared: not the model, and not `predict.py`, which is its code for
opening the model and for turning images into input.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


class Refused(Exception):
    """Why the service does not start."""


@dataclass(frozen=True)
class Promise:
    """What the report says of the file that is served; milliseconds of one inference of the device's batch."""

    undisturbed_ms: float
    p50_ms: float  # these three on the machine as it was
    p90_ms: float
    p99_ms: float
    call_ms: float  # what calling the runtime from Python adds
    budget_ms: float | None
    budget: str  # which latency it is about
    outcome: str | None
    processor: str


@dataclass(frozen=True)
class OpenBundle:
    name: str
    model: Path
    predict: ModuleType
    session: dict[str, Any]  # how it was opened where it was measured
    device: dict[str, Any]
    promise: Promise | None


def open_bundle(folder: Path, wanted: str | None = None) -> OpenBundle:
    """`wanted`: another of its models than the one to deploy."""
    manifest = _json(folder / "manifest.json", f"{folder} is not a bundle: it has no manifest.json")
    try:
        listed = {file["path"]: file["sha256"] for file in manifest["files"]}
        about = manifest.get("about") or {}
    except (KeyError, TypeError) as error:
        raise Refused(f"{folder / 'manifest.json'} is not the manifest of a bundle") from error
    name = wanted or manifest.get("model") or "model.onnx"
    if name not in listed:
        raise Refused(f"{folder} lists no model `{name}`; it has {', '.join(p for p in listed if p.endswith('.onnx'))}")
    if "predict.py" not in listed:
        raise Refused(f"{folder} has no predict.py: networks of an ensemble that run in parallel are not served here")
    for path in (name, "predict.py", "report.json"):
        _require_unchanged(folder, path, listed)
    if not about.get("session"):
        raise Refused(
            f"{folder} does not say how its sessions were opened: an earlier deploynas made it, export it again"
        )
    return OpenBundle(
        name=_title(folder, listed),
        model=folder / name,
        predict=_imported(folder / "predict.py"),
        session=about["session"],
        device=about.get("device") or {},
        promise=_promise(folder, name, listed),
    )


def _require_unchanged(folder: Path, path: str, listed: dict[str, str]) -> None:
    if path not in listed:
        return
    try:
        found = hashlib.sha256((folder / path).read_bytes()).hexdigest()
    except OSError as error:
        raise Refused(f"{folder / path} cannot be read: {error.strerror}") from error
    if found != listed[path]:
        raise Refused(f"{folder / path} changed since the bundle was made: its SHA-256 is not the manifest's")


def _json(path: Path, missing: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Refused(missing) from error
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Refused(f"{path} is not a JSON object")
    return found


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle_predict", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _title(folder: Path, listed: dict[str, str]) -> str:
    """The name under which clients ask for the model: that of the space, which the report has."""
    if "report.json" not in listed:
        return folder.resolve().name
    return str(_json(folder / "report.json", "").get("space") or folder.resolve().name)


def _promise(folder: Path, model: str, listed: dict[str, str]) -> Promise | None:
    """An ensemble has no report, and its timings stand beside its file."""
    if "report.json" not in listed:
        return _promise_of_bench(folder, model, listed)
    report = _json(folder / "report.json", "")
    # one file may have two rows, in fp32 and in bf16; the session of the manifest is that of the one to deploy
    rows = [one for one in report["files"] if one["path"] == model]
    file = next((one for one in rows if one["precision"] == report["gated"]), rows[0] if rows else None)
    if file is None or not file.get("timing"):
        return None
    deployed = file["precision"] == report["gated"]
    kind = report["device"]["budget"]
    return _stated(
        file["timing"],
        budget_ms=report["budget_ms"] if deployed else None,
        budget="undisturbed" if kind == "undisturbed" else f"{kind} as it was",
        outcome=report.get("outcome") if deployed else None,
        processor=report["hardware"]["processor"],
    )


def _promise_of_bench(folder: Path, model: str, listed: dict[str, str]) -> Promise | None:
    for path in listed:
        if path.startswith("bench.") and path.endswith(".json"):
            _require_unchanged(folder, path, listed)
            bench = _json(folder / path, "")
            if bench["model"] == model and bench.get("timing"):
                processor = bench["provenance"]["hardware"]["processor"]
                return _stated(bench["timing"], budget_ms=None, budget="", outcome=None, processor=processor)
    return None


def _stated(timing: dict[str, Any], **about: Any) -> Promise:
    clock, loading = timing["clock"], timing.get("loading") or {}
    return Promise(
        undisturbed_ms=timing["undisturbed"]["latency_ms"],
        p50_ms=clock["p50_ms"],
        p90_ms=clock["p90_ms"],
        p99_ms=clock["p99_ms"],
        call_ms=loading.get("call_ms") or 0.0,
        **about,
    )
