"""Who computes when: a fixed number of threads, a bounded queue before them, and batches if they are asked for.

The event loop never decodes and never infers. Whoever comes when the queue is full is sent away at once, so neither
memory nor waiting time grow with the number of clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TypeVar

import numpy as np
from network import ServedNetwork, inferences_at_once
from refusals import Refusal

Result = TypeVar("Result")
DECODING_BESIDE = 2  # threads more than an accelerator's one inference at a time, which decode meanwhile


@dataclass(frozen=True)
class Limits:
    workers: int | None = None  # threads; None: as many as inferences have cores
    queue: int = 64  # requests that wait beside those that are computed
    wait_s: float = 10.0  # in the queue, before a request is given up
    max_batch: int = 1
    max_wait_ms: float = 2.0  # for others to share a batch with


@dataclass(frozen=True)
class Computed:
    logits: np.ndarray
    queue_ms: float  # until a thread was free
    decode_ms: float
    infer_ms: float  # of the whole batch that it was part of
    rows: int  # of that batch


class Engine:
    def __init__(self, network: ServedNetwork, limits: Limits) -> None:
        self.network, self.limits = network, limits
        at_once = inferences_at_once(network)
        self.workers = limits.workers or (at_once if network.on_cpu else at_once + DECODING_BESIDE)
        self.inside = 0  # requests that wait or are computed
        self._pool = ThreadPoolExecutor(self.workers, "compute")
        self._free = BoundedSemaphore(self.workers if network.on_cpu else at_once)
        self._batches = SharedInferences(self) if limits.max_batch > 1 else None

    async def compute(self, decode: Callable[[], np.ndarray]) -> Computed:
        """The logits of what `decode` makes; it is called in a thread."""
        if self.inside >= self.workers + self.limits.queue:
            raise Refusal(503, "too many requests are waiting")
        self.inside += 1
        try:
            asked = time.perf_counter()
            if self._batches is None:
                return await self.in_thread(lambda: self._alone(decode, asked))
            images, queue_ms, decode_ms = await self.in_thread(lambda: self._decoded(decode, asked))
            logits, infer_ms, rows = await self._batches.logits(images)
            return Computed(logits, queue_ms, decode_ms, infer_ms, rows)
        finally:
            self.inside -= 1

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def timed_logits(self, images: np.ndarray) -> tuple[np.ndarray, float]:
        with self._free:
            begun = time.perf_counter()
            logits = self.network.logits(images)
            return logits, 1000 * (time.perf_counter() - begun)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _decoded(self, decode: Callable[[], np.ndarray], asked: float) -> tuple[np.ndarray, float, float]:
        begun = time.perf_counter()
        if begun - asked > self.limits.wait_s:
            raise Refusal(503, f"waited for more than {self.limits.wait_s:g} s")
        images = decode()
        return images, 1000 * (begun - asked), 1000 * (time.perf_counter() - begun)

    def _alone(self, decode: Callable[[], np.ndarray], asked: float) -> Computed:
        images, queue_ms, decode_ms = self._decoded(decode, asked)
        logits, infer_ms = self.timed_logits(images)
        return Computed(logits, queue_ms, decode_ms, infer_ms, len(images))


@dataclass(frozen=True)
class Waiting:
    images: np.ndarray
    answer: asyncio.Future[tuple[np.ndarray, float, int]]


class SharedInferences:
    """Images of several requests in one inference. A batch goes when it is full, when its first request has waited
    long enough, or when nobody is left who could join."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def logits(self, images: np.ndarray) -> tuple[np.ndarray, float, int]:
        loop, limits = asyncio.get_running_loop(), self._engine.limits
        if self._rows + len(images) > limits.max_batch:
            self._go()
        one = Waiting(images, loop.create_future())
        self._waiting.append(one)
        if self._rows >= limits.max_batch or len(self._waiting) == self._engine.inside:
            self._go()
        elif self._timer is None:
            self._timer = loop.call_later(limits.max_wait_ms / 1000, self._go)
        return await one.answer

    @property
    def _rows(self) -> int:
        return sum(len(one.images) for one in self._waiting)

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            batch, self._waiting = self._waiting, []
            task = asyncio.get_running_loop().create_task(self._compute(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _compute(self, batch: list[Waiting]) -> None:
        images = np.concatenate([one.images for one in batch])
        try:
            logits, infer_ms = await self._engine.in_thread(lambda: self._engine.timed_logits(images))
        except BaseException as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for one in batch:
            if not one.answer.done():  # its client may be gone
                one.answer.set_result((logits[start : start + len(one.images)], infer_ms, len(images)))
            start += len(one.images)
