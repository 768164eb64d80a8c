"""Answer over HTTP with the model of a bundle: a POST of an image file returns its classes as JSON.

    python serve.py BUNDLE [--model model.onnx] [--port 8000]

Needs what the bundle's own predict.py needs (onnxruntime, numpy, pillow), and nothing else. A starting point: put a
real web server in front of it before strangers can reach it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image, UnidentifiedImageError

MAX_BYTES = 20_000_000  # of an image file


def predictor_of(bundle: Path) -> ModuleType:
    """The bundle's predict.py: it reads from the model file how an image becomes the network's input."""
    spec = importlib.util.spec_from_file_location("bundle_predict", bundle / "predict.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Classifier:
    def __init__(self, bundle: Path, model: str) -> None:
        self._predict = predictor_of(bundle)
        self._session, self._how, self.labels = self._predict.load(bundle / model)

    def classes(self, image_file: bytes) -> list[dict[str, str | float]]:
        """Every class with its probability, most likely first."""
        with Image.open(io.BytesIO(image_file)) as image:
            pixels = self._predict.preprocess(image, self._how)
        odds = self._predict.classify(self._session, pixels[None])[0]
        return [{"label": self.labels[i], "p": round(float(odds[i]), 6)} for i in np.argsort(-odds)]


def handler_of(classifier: Classifier) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """What the model knows; also says that the server is up."""
            self._answer(200, {"labels": classifier.labels})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= MAX_BYTES:
                self._answer(413 if length else 411, {"error": f"send an image file of at most {MAX_BYTES} bytes"})
                return
            try:
                self._answer(200, {"classes": classifier.classes(self.rfile.read(length))})
            except (OSError, UnidentifiedImageError):
                self._answer(415, {"error": "not an image that can be read"})

        def _answer(self, status: int, document: dict) -> None:
            body = json.dumps(document, ensure_ascii=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the model of a bundle over HTTP.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--model", default="model.onnx", help="which of the bundle's models (default: model.onnx)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free (default: 8000)")
    options = parser.parse_args()
    server = ThreadingHTTPServer((options.host, options.port), handler_of(Classifier(options.bundle, options.model)))
    print(f"serving {options.bundle} on http://{options.host}:{server.server_port}/", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
