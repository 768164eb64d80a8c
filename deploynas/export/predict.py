"""Classify images with the model beside this file. Needs onnxruntime, numpy and pillow, nothing else.

    python predict.py IMAGE... [--model model.onnx] [--provider CPUExecutionProvider] [--top 5] [--json]

The model is the one that the bundle was made to deploy, which `manifest.json` names. It runs as it was measured, with
the threads, the provider and the options that the manifest tells; where that provider is missing it says so and takes
the CPU. How an image becomes the network's input, and what its classes are called, is read from the model file itself.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import importlib.util
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # nothing is written or sent elsewhere; your own setting wins

import numpy as np
import onnxruntime
from PIL import Image, UnidentifiedImageError

CPU = "CPUExecutionProvider"
# a convolution of the largest 8-bit inputs and weights: 16 in every place, unless sums of products saturate
LARGEST_SUMS = (
    "eNrlUz1PwzAQjZOUptdCnUCrqguoC5KX7gWkKDCgCAnBhFhQSqw2oiQhTvnoAGXgR7Cx8uv4C9hJ1KYNZWHE1sXnp8s7n+9Z04yKS8NR8OQ7rPdZ"
    "gnMoeX44jqGaLF127YwoQLqZ0Cgw6ql/N3b82JtQt70MdDbOMvfE86kTQR+WQ1az66nv0jl/Eergo9kmy/EMwMa33QfqDYYx4Lmf5ajnkCRRMwfk"
    "s63AiylJFVTn0WMt6QPJ8IageE5YQWYoHG+LT0c9DPx7UoPSIArGYQtxLtKA2g2NfDq6YkMnpCYyOVwmOqih4zJTSqeAMJRZHHkuZVkQHIOghYpI"
    "nFauCTcpeV1480oXt4WuncJiwM+ca6Ng4MWsndzvr/eVE9rldqYyowlbGjIwyBriJlZVWH8HMuJVEZYKEtZ7XwppYGTl5WSrr9PpHtGxbOWEZSOJ"
    "vPP/+UQawoqVk4s9lV/++SAXGub3WHg3tqnKaP8vRnY5s2Itvz8bS0uDbPIDzDWWtPGA1HkbZ2rjTfwGah+MLw=="
)


def recommended(bundle: Path) -> Path:
    """The model to deploy."""
    manifest = bundle / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    return bundle / Path(told.get("model") or "model.onnx").name  # a bundle's own, wherever a manifest may point


class Loaded(NamedTuple):
    session: Any
    how: dict[str, Any]  # an image becomes the network's input
    labels: list[str]
    notes: tuple[str, ...] = ()  # what to know before the report's figures are trusted here


def as_measured(path: Path) -> dict[str, Any]:
    """How the sessions that were measured were opened, from the manifest beside the model; without one, nothing."""
    manifest = path.parent / "manifest.json"
    about = json.loads(manifest.read_text(encoding="utf-8")).get("about") if manifest.is_file() else None
    return (about or {}).get("session") or {}


def load(path: Path, wanted: str | None = None) -> Loaded:
    """A model, ready to classify."""
    told, notes = as_measured(path), []
    provider = wanted or told.get("provider") or _properties(open_session(path, CPU, {})).get("provider", CPU)
    own = told if provider == told.get("provider") else {}  # options of another provider mean nothing to this one
    plugin = own.get("plugin")
    if not (importlib.util.find_spec(plugin) if plugin else provider in onnxruntime.get_available_providers()):
        notes.append(f"{provider} is not here, the CPU is used: the report's latencies do not hold")
        provider, own = CPU, {}
    session = open_session(path, provider, own)
    if provider not in session.get_providers():
        instead = session.get_providers()[0]
        notes.append(f"{provider} does not start, {instead} is used: the report's latencies do not hold")
    properties = _properties(session)
    if provider == CPU:
        notes += integer_notes(json.loads(properties.get("integers", "{}")))
    return Loaded(session, json.loads(properties["preprocessing"]), json.loads(properties["labels"]), tuple(notes))


def open_session(path: Path, provider: str, told: dict[str, Any]) -> Any:
    """`told` is `about.session` of the manifest; empty: the runtime's own defaults."""
    for name, value in told.get("environment", {}).items():
        os.environ.setdefault(name, value)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = told.get("intra_op_threads", 0)
    options.inter_op_num_threads = told.get("inter_op_threads", 0)
    for key, value in told.get("session_options", {}).items():
        options.add_session_config_entry(key, value)
    if told.get("batch"):  # the provider compiles for this one
        options.add_free_dimension_override_by_name("batch", told["batch"])
    given = told.get("provider_options", {})
    if told.get("plugin"):
        devices = _plugin_devices(provider, told)
        if devices:  # else nothing it runs on is here, and the CPU takes over
            options.add_provider_for_devices(devices, given)
        return onnxruntime.InferenceSession(str(path), options)
    providers = [(provider, given)] if provider == CPU else [(provider, given), (CPU, {})]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)


def _plugin_devices(provider: str, told: dict[str, Any]) -> list[Any]:
    """What a provider with a library of its own offers, which has to be introduced, once a process."""
    if provider not in {one.ep_name for one in onnxruntime.get_ep_devices()}:
        library = importlib.import_module(told["plugin"]).get_library_path()
        onnxruntime.register_execution_provider_library(provider, str(library))
    offered = [one for one in onnxruntime.get_ep_devices() if one.ep_name == provider]
    return [one for one in offered if told.get("device_type") in (None, one.device.type.name)][:1]


def integer_notes(verified: dict[str, Any]) -> list[str]:
    """Whether an 8-bit file computes here what it did where it was verified."""
    there = verified.get("sums")
    if verified.get("any_processor") or not there or there == integer_sums():
        return []
    known = ", ".join(verified.get("instruction_sets", [])) or "another processor"
    return [
        f"it was verified with {known}; integer kernels here sum otherwise: accuracy and classes are not the report's"
    ]


def integer_sums() -> str:
    """`exact`, or `saturating`: x86 processors without VNNI add two products of 8 bits in 16."""
    content = zlib.decompress(base64.b64decode(LARGEST_SUMS))
    session = onnxruntime.InferenceSession(content, providers=[CPU])
    given = session.get_inputs()[0]
    found = session.run(None, {given.name: np.ones(given.shape, np.float32)})[0]
    return "exact" if np.allclose(found, 16, rtol=0.01) else "saturating"


def _properties(session: Any) -> dict[str, str]:
    return session.get_modelmeta().custom_metadata_map


def preprocess(image: Image.Image, how: dict[str, Any]) -> np.ndarray:
    """(channels, height, width), normalised."""
    image = image.convert("L" if how["channels"] == 1 else "RGB")
    height, width = how["height"], how["width"]
    shorter = how["resize_shorter_side"]
    if shorter is None:
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    else:
        w, h = image.size
        size = (shorter, int(shorter * h / w)) if w <= h else (int(shorter * w / h), shorter)
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        image = image.crop((left, top, left + width, top + height))
    pixels = np.asarray(image, np.float32).reshape(height, width, -1) / np.float32(255)
    normalised = (pixels - np.float32(how["mean"])) / np.float32(how["std"])
    return np.ascontiguousarray(normalised.transpose(2, 0, 1))


def logits_of(session: Any, images: np.ndarray) -> np.ndarray:
    """What the network says, a row an image. Where its batch is fixed, the rest of a batch is filled up."""
    given = session.get_inputs()[0]
    batch = given.shape[0] if isinstance(given.shape[0], int) else len(images)
    rows = []
    for start in range(0, len(images), batch):
        part = images[start : start + batch]
        missing = batch - len(part)
        whole = np.concatenate([part, np.zeros_like(images[:1]).repeat(missing, axis=0)]) if missing else part
        rows.append(session.run(None, {given.name: whole})[0][: len(part)])
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def classify(session: Any, images: np.ndarray) -> np.ndarray:
    """Probabilities, a row an image."""
    return odds_of(logits_of(session, images))


def odds_of(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Classify images with an exported network.")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--model", type=Path, help="default: the one to deploy")
    parser.add_argument("--top", type=int, default=3, help="classes to print for each image")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--provider", help="of ONNX Runtime; default: the one that the model was measured on")
    options = parser.parse_args()
    session, how, labels, notes = load(options.model or recommended(Path(__file__).parent), options.provider)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    found: list[dict[str, Any]] = []
    for path in options.images:
        try:
            with Image.open(path) as image:
                odds = classify(session, preprocess(image, how)[None])[0]
        except (OSError, UnidentifiedImageError) as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            return 2
        best = np.argsort(-odds)[: options.top]
        found.append({"image": str(path), "classes": [{"label": labels[i], "p": float(odds[i])} for i in best]})
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    for item in found:
        print(item["image"])
        for guess in item["classes"]:
            print(f"  {100 * guess['p']:5.1f} %  {guess['label']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
