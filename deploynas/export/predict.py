"""Classify images with the model beside this file. Needs onnxruntime, numpy and pillow, nothing else.

    python predict.py IMAGE... [--model model.onnx] [--provider CPUExecutionProvider] [--top 5] [--json]

The model is the one that the bundle was made to deploy, which `manifest.json` names. It runs on the provider that it
was measured on; where that is missing it says so and takes the CPU. How an image becomes the network's input, and what
its classes are called, is read from the model file itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # nothing is written or sent elsewhere; your own setting wins

import numpy as np
import onnxruntime
from PIL import Image, UnidentifiedImageError

CPU = "CPUExecutionProvider"


def recommended(bundle: Path) -> Path:
    """The model to deploy."""
    manifest = bundle / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    return bundle / (told.get("model") or "model.onnx")


def load(path: Path, wanted: str | None = None) -> tuple[Any, dict[str, Any], list[str]]:
    """The session, the preprocessing and the labels of a model."""
    session = onnxruntime.InferenceSession(str(path), providers=[CPU])
    properties = session.get_modelmeta().custom_metadata_map
    provider = wanted or properties.get("provider", CPU)
    if provider not in onnxruntime.get_available_providers():
        print(f"note: {provider} is not here, the CPU is used: the report's latencies do not hold", file=sys.stderr)
    elif provider != CPU:
        session = onnxruntime.InferenceSession(str(path), providers=[provider, CPU])
    return session, json.loads(properties["preprocessing"]), json.loads(properties["labels"])


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


def classify(session: Any, images: np.ndarray) -> np.ndarray:
    """Probabilities, a row an image."""
    logits = session.run(None, {session.get_inputs()[0].name: images})[0]
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
    session, how, labels = load(options.model or recommended(Path(__file__).parent), options.provider)
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
