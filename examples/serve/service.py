"""The routes: an image in and its classes out, tensors by the Open Inference Protocol, health, metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import open_inference
from bodies import Bodies, BodyLimits
from engine import Computed, Engine, Limits
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from images import FORMATS, ImageReader
from metrics import ServiceMetrics
from network import ServedNetwork
from refusals import Refusal
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

LOG = logging.getLogger("serve")
Message = MutableMapping[str, Any]


class Service:
    def __init__(
        self, network: ServedNetwork, limits: Limits, body_limits: BodyLimits, max_pixels: int, max_rows: int
    ) -> None:
        self.network, self.max_pixels, self.max_rows = network, max_pixels, max_rows
        self.reader = ImageReader(network, max_pixels)
        self.engine = Engine(network, limits)
        self.bodies = Bodies(body_limits)
        self.metrics = ServiceMetrics(network.promise)
        self.warm = self.stopping = False

    @property
    def ready(self) -> bool:
        return self.warm and not self.stopping

    async def warm_up(self) -> None:
        """In the threads that will compute."""
        await self.engine.in_thread(lambda: self.network.warm_up(max(1, self.engine.limits.max_batch)))
        self.warm = True

    def stop(self) -> None:
        self.stopping = True

    async def classified(self, request: Request) -> JSONResponse:
        top = _top(request, len(self.network.labels))
        _require_raw(request)
        async with self.bodies.of(request, self.bodies.limits.each) as content:
            done = await self._computed(lambda: self.reader.read(content))
        odds = self.network.predict.odds_of(done.logits)[0]
        if not np.isfinite(odds).all():
            raise Refusal(422, "the network has no finite answer to this image")
        best = np.argsort(-odds)[:top]
        classes = [{"label": self.network.labels[i], "p": float(odds[i])} for i in best]
        return JSONResponse({"classes": classes}, headers=_timing(done))

    async def inferred(self, request: Request) -> JSONResponse:
        if "inference-header-content-length" in request.headers:
            raise Refusal(415, "tensors are read as JSON, not as the protocol's binary extension")
        most = open_inference.largest_body(self.network, self.max_rows)
        asked: list[open_inference.Infer] = []

        def decode() -> np.ndarray:
            asked.append(open_inference.read(content, self.network, self.max_rows))
            return asked[0].images

        async with self.bodies.of(request, most) as content:
            done = await self._computed(decode)
        if not np.isfinite(done.logits).all():
            raise Refusal(422, "the network has no finite answer to these numbers")
        return JSONResponse(open_inference.answer(done.logits, self.network, asked[0].id), headers=_timing(done))

    async def _computed(self, decode: Callable[[], np.ndarray]) -> Computed:
        if not self.warm:
            raise Refusal(503, "not ready yet")
        done = await self.engine.compute(decode)
        self.metrics.computed(done.queue_ms, done.decode_ms, done.infer_ms, done.rows)
        return done

    def about(self) -> dict[str, Any]:
        network, limits = self.network, self.engine.limits
        return {
            "model": network.name,
            "classes": network.labels,
            "input": {"formats": FORMATS, **network.how},
            "computed_by": {
                "provider": network.provider,
                "threads": network.threads,
                "at_once": self.engine.workers,
                "max_batch": limits.max_batch,
            },
            "promise": asdict(network.promise) if network.promise else None,
            "promised_batch": network.device_batch,
            "notes": network.notes,
            "limits": {
                "body_bytes": self.bodies.limits.each,
                "pixels": self.max_pixels,
                "images_a_tensor": self.max_rows,
                "waiting": limits.queue,
            },
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "ready": ("Whether requests are wanted.", self.ready),
            "requests_inside": ("Requests that wait or are computed.", self.engine.inside),
            "bodies_held_bytes": ("Bodies that are being read or answered.", self.bodies.held),
        }


def application(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.engine.close()

    app = FastAPI(title=service.network.name, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(CountedAnswers, service=service)  # type: ignore[arg-type]
    app.exception_handler(Refusal)(_refused)
    app.exception_handler(HTTPException)(_no_route)
    app.exception_handler(ClientDisconnect)(_gone)
    app.exception_handler(Exception)(_broken)
    _add_state(app, service)
    _add_inference(app, service)
    return app


def _add_state(app: FastAPI, service: Service) -> None:
    def state(good: bool, word: str) -> JSONResponse:
        return JSONResponse({word: good}, status_code=200 if good else 503)

    @app.get("/")
    async def about() -> JSONResponse:
        """Classes, what the report promises, and notes on why it may not hold here."""
        return JSONResponse(service.about())

    @app.get("/healthz")
    @app.get("/v2/health/live")
    async def live() -> JSONResponse:
        return state(True, "live")

    @app.get("/readyz")
    @app.get("/v2/health/ready")
    async def ready() -> JSONResponse:
        """Warmed up, and not stopping."""
        return state(service.ready, "ready")

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        text = service.metrics.text(service.gauges())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _add_inference(app: FastAPI, service: Service) -> None:
    def require_name(name: str) -> None:
        if name != service.network.name:
            raise Refusal(404, f"the model is called `{service.network.name}`")

    @app.post("/classify")
    async def classify(request: Request) -> JSONResponse:
        """The body is an image file; `top`: how many classes, all of them without it."""
        return await service.classified(request)

    @app.get("/v2")
    async def server() -> JSONResponse:
        return JSONResponse({"name": "deploynas-serve", "version": open_inference.VERSION, "extensions": []})

    @app.get("/v2/models/{name}")
    async def model(name: str) -> JSONResponse:
        require_name(name)
        return JSONResponse(open_inference.metadata(service.network))

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str) -> JSONResponse:
        require_name(name)
        return JSONResponse({"ready": service.ready}, status_code=200 if service.ready else 503)

    @app.post("/v2/models/{name}/infer")
    async def infer(name: str, request: Request) -> JSONResponse:
        """Preprocessed images in, logits out."""
        require_name(name)
        return await service.inferred(request)


class CountedAnswers:
    """Counts every answer with its route, and how long it took."""

    def __init__(self, app: Callable[..., Awaitable[None]], service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Message, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            route = getattr(scope.get("route"), "path", "other")  # never a path that a client made up
            self._service.metrics.answered(route, status, time.perf_counter() - begun)


def _top(request: Request, classes: int) -> int:
    asked = request.query_params.get("top")
    if asked is None:
        return classes
    if not (asked.isascii() and asked.isdigit() and len(asked) <= 9 and int(asked) > 0):
        raise Refusal(400, "`top` must be a whole number from 1")
    return min(int(asked), classes)


def _require_raw(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("multipart/") or kind in ("application/json", "text/html"):
        raise Refusal(415, f"the body must be the image file itself, not {kind}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "a compressed body is not read here")


def _timing(done: Computed) -> dict[str, str]:
    steps = {"queue": done.queue_ms, "decode": done.decode_ms, "infer": done.infer_ms}
    return {"Server-Timing": ", ".join(f"{name};dur={ms:.4f}" for name, ms in steps.items())}


async def _refused(_: Request, refusal: Exception) -> JSONResponse:
    assert isinstance(refusal, Refusal)
    return refusal.response


async def _no_route(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    """Nobody is left to read it; it is counted."""
    return Response(status_code=400)


async def _broken(_: Request, error: Exception) -> JSONResponse:
    LOG.error("a request failed", exc_info=error)
    return JSONResponse({"error": "an error of the service, which its log tells"}, status_code=500)
