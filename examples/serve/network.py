"""The model of a bundle in this process, opened as it was measured, with what a caller has to know about it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from bundle import OpenBundle, Promise, Refused

WARM_INFERENCES, WARM_S = 20, 0.2


@dataclass(frozen=True)
class ServedNetwork:
    name: str
    session: Any
    predict: ModuleType
    how: dict[str, Any]  # an image becomes the network's input
    labels: list[str]
    input_name: str
    output_name: str
    shape: tuple[int, int, int]  # of one image: channels, height, width
    fixed_batch: int | None  # the only one that the provider computes
    device_batch: int  # the one that the promise is about
    threads: int  # of one inference
    provider: str
    warmup_s: float
    promise: Promise | None
    notes: tuple[str, ...]  # why the promise may not hold here

    def logits(self, images: np.ndarray) -> np.ndarray:
        return self.predict.logits_of(self.session, images)

    def odds(self, images: np.ndarray) -> np.ndarray:
        return self.predict.odds_of(self.logits(images))

    @property
    def on_cpu(self) -> bool:
        """It computes where this process decodes; several inferences may run at once."""
        return self.provider in ("CPUExecutionProvider", "OpenVINOExecutionProvider", "XnnpackExecutionProvider")

    def warm_up(self, rows: int) -> None:
        """Inferences of every batch that will be asked for, until caches, memory and clocks have settled."""
        rng = np.random.default_rng(0)
        for batch in range(1, rows + 1):
            images = rng.standard_normal((batch, *self.shape)).astype(np.float32)
            begun = time.perf_counter()
            wait_s = max(WARM_S, self.warmup_s) if batch == 1 else 0.0
            done = 0
            answer = np.empty(0)
            while done < WARM_INFERENCES // batch + 1 or time.perf_counter() - begun < wait_s:
                answer = self.logits(images)
                done += 1
            if answer.shape != (batch, len(self.labels)):
                raise Refused(f"the model answers {answer.shape}, expected ({batch}, {len(self.labels)})")


def open_network(bundle: OpenBundle, allow_fallback: bool = False) -> ServedNetwork:
    notes = _pinned(bundle.session.get("cores"))
    try:
        loaded = bundle.predict.load(bundle.model)
    except Exception as error:  # the runtime raises its own private types, and plain RuntimeError
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Refused(f"{bundle.model} cannot be opened: {reason}") from error
    wanted, runs_on = bundle.session["provider"], loaded.session.get_providers()[0]
    if runs_on != wanted and not allow_fallback:
        raise Refused(
            f"the bundle was measured on {wanted}, which this machine does not offer; {runs_on} would compute instead "
            "(--allow-fallback serves with it, and no latency of the report holds)"
        )
    given, answered = loaded.session.get_inputs()[0], loaded.session.get_outputs()[0]
    batch, *shape = given.shape
    threads = int(bundle.session["threads"])
    if runs_on == wanted and threads > _cores():
        notes.append(
            f"measured with {threads} threads, and this process may use {_cores()} cores: the promise fails here"
        )
    device_batch = int(bundle.device.get("batch") or 1)
    if device_batch > 1 and not isinstance(batch, int):
        notes.append(f"the report's latencies are for a batch of {device_batch}; an image alone is a batch of 1")
    return ServedNetwork(
        name=bundle.name,
        session=loaded.session,
        predict=bundle.predict,
        how=loaded.how,
        labels=list(loaded.labels),
        input_name=given.name,
        output_name=answered.name,
        shape=(int(shape[0]), int(shape[1]), int(shape[2])),
        fixed_batch=batch if isinstance(batch, int) else None,
        device_batch=device_batch,
        threads=max(1, threads),
        provider=runs_on,
        warmup_s=float(bundle.session.get("warmup_s") or 0.0),
        promise=bundle.promise,
        notes=(*loaded.notes, *notes),
    )


def _pinned(cores: list[int] | None) -> list[str]:
    """Stay on the cores that the device file names, where they are here."""
    if cores is None:
        return []
    if hasattr(os, "sched_setaffinity") and set(cores) <= os.sched_getaffinity(0):
        os.sched_setaffinity(0, set(cores))
        return []
    return [f"measured on cores {cores}, which this process may not choose: the promise may not hold"]


def _cores() -> int:
    """That this process may use; a container's share of the processor counts."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota() -> float | None:
    """CPUs' worth of time that the control group of a container allows, which sees its own group as the top."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return float(quota) / float(period)
    except (OSError, ValueError):  # another system, the first version of control groups, or `max`
        return None


def inferences_at_once(network: ServedNetwork) -> int:
    """As many as have their threads' worth of cores; an accelerator computes one after the other."""
    return max(1, _cores() // network.threads) if network.on_cpu else 1
