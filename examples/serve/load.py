"""Load a running service from this process, and print what its clients waited beside what the bundle's report promised.

    python load.py http://127.0.0.1:8000 --requests 100000 --concurrency 1,2,4,8,16
    python load.py http://127.0.0.1:8000 --image some.png other.png --json load.json

`--concurrency`: connections that each send the next request when the last one is answered; the requests are shared out
equally. Every answer's best class is compared with the one that the same image got before the load. Needs Python alone.
Only loopback addresses are loaded, unless `--elsewhere` says that the machine is yours to load. Exit code 1 if a
request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import random
import re
import socket
import statistics
import struct
import sys
import time
import urllib.request
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MADE_UP_IMAGES = 16
WARM_REQUESTS = 200  # before each concurrency, not counted
SILENCE_S = 60.0
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
INFERENCE = re.compile(rb"infer;dur=([\d.]+)")
BEST = re.compile(rb'"label": *("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class LoadCase:
    request: bytes
    best: bytes  # class, from an answer before the load


@dataclass
class Level:
    """What came of one concurrency; milliseconds."""

    concurrency: int
    requests: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    waited_ms: list[float] = field(default_factory=list)  # by the client, from the first byte out to the last one in
    inferred_ms: list[float] = field(default_factory=list)  # by the service's own clock
    memory_before: float | None = None  # bytes of the service
    memory_after: float | None = None

    def row(self) -> dict[str, Any]:
        return {
            "concurrency": self.concurrency,
            "requests": self.requests,
            "failed": dict(self.failed),
            "seconds": round(self.seconds, 3),
            "per_second": round(self.requests / self.seconds, 1),
            "request_ms": percentiles(self.waited_ms),
            "inference_ms": percentiles(self.inferred_ms),
            "memory_before_bytes": self.memory_before,
            "memory_after_bytes": self.memory_after,
        }


class Client(asyncio.Protocol):
    """One connection, which sends its next request when the last one is answered."""

    def __init__(self, level: Level, cases: list[LoadCase], left: list[int], done: asyncio.Future[None]) -> None:
        self._level, self._cases, self._left, self._done = level, cases, left, done
        self._received = bytearray()
        self._sent, self._case = 0.0, cases[0]
        self._counted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._left[0] <= 0:
            self._transport.close()
            return
        self._left[0] -= 1
        self._case = random.choice(self._cases)
        self._received.clear()
        self._sent = time.perf_counter()
        self._transport.write(self._case.request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self._received, 0, end)
        if length is None or len(self._received) < end + 4 + int(length[1]):
            return
        now = time.perf_counter()
        self._answered(int(self._received[9:12]), end, 1000 * (now - self._sent))
        self._sent = 0.0
        self._next()

    def _answered(self, status: int, end: int, waited_ms: float) -> None:
        level = self._level
        level.requests += 1
        if status != 200:
            level.failed[str(status)] += 1
            return
        best = BEST.search(self._received, end)
        if best is None or best[1] != self._case.best:
            level.failed["another class"] += 1
            return
        level.waited_ms.append(waited_ms)
        timed = INFERENCE.search(self._received, 0, end)
        if timed:
            level.inferred_ms.append(float(timed[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent:  # in the middle of a request
            self._level.requests += 1
            self._level.failed["connection lost"] += 1
        if not self._done.done():
            self._done.set_result(None)


async def load(address: tuple[str, int], cases: list[LoadCase], level: Level, requests: int) -> None:
    loop = asyncio.get_running_loop()
    left, ends = [requests], [loop.create_future() for _ in range(level.concurrency)]
    begun = time.perf_counter()
    for end in ends:
        await loop.create_connection(lambda end=end: Client(level, cases, left, end), *address)  # type: ignore[misc]
    pending = asyncio.gather(*ends)
    while not pending.done():
        seen = level.requests
        await asyncio.wait([pending], timeout=SILENCE_S)
        if not pending.done() and level.requests == seen:
            level.failed[f"no answer for {SILENCE_S:g} s"] += level.concurrency
            pending.cancel()
            break
    level.seconds = time.perf_counter() - begun
    if left[0] > 0:  # all connections were lost
        level.failed["not sent"] += left[0]


def main() -> int:
    options = _options()
    url = urlsplit(options.url)
    address = (url.hostname or "127.0.0.1", url.port or 80)
    if not options.elsewhere and not _is_loopback(address[0]):
        print(f"error: {address[0]} is not this machine (--elsewhere, if it is yours to load)", file=sys.stderr)
        return 2
    base = f"{url.scheme}://{url.netloc}"
    about = json.loads(_get(f"{base}/"))
    images = [path.read_bytes() for path in options.image] or list(_made_up(about["input"]))
    cases = [_case(base, url.netloc, image) for image in images]
    levels = []
    for concurrency in options.concurrency:
        asyncio.run(load(address, cases, Level(concurrency), max(WARM_REQUESTS, concurrency)))
        level = Level(concurrency, memory_before=_memory(base))
        asyncio.run(load(address, cases, level, -(-options.requests // len(options.concurrency))))
        level.memory_after = _memory(base)
        levels.append(level.row())
        print(f"{concurrency} at once: done in {level.seconds:.1f} s", file=sys.stderr, flush=True)
    document = {
        "requests": sum(row["requests"] for row in levels),
        "failed": sum(sum(row["failed"].values()) for row in levels),
        "model": about["model"],
        "computed_by": about["computed_by"],
        "promise": about["promise"],
        "promised_batch": about["promised_batch"],
        "notes": about["notes"],
        "levels": levels,
    }
    print("\n".join(table(document)))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if document["failed"] else 0


def table(document: dict[str, Any]) -> list[str]:
    """Markdown."""
    lines = [
        "| at once | requests | per second | request, p50 | p90 | p99 | worst | inference, p50 | p90 | p99 | failed "
        "| memory before | after |",
        "|" + "---:|" * 13,
    ]
    for row in document["levels"]:
        waited, inferred = row["request_ms"].values(), list(row["inference_ms"].values())
        cells = [f"{row['concurrency']}", f"{row['requests']}", f"{row['per_second']:.0f}"]
        cells += [f"{value:.3g} ms" for value in waited] + [f"{value:.3g} ms" for value in inferred[:3]]
        failed = ", ".join(f"{count} x {what}" for what, count in row["failed"].items()) or "0"
        memory = [_mib(row["memory_before_bytes"]), _mib(row["memory_after_bytes"])]
        lines.append("| " + " | ".join([*cells, failed, *memory]) + " |")
    return [*lines, "", *promised(document)]


def promised(document: dict[str, Any]) -> list[str]:
    """What the report says, and the inference of the fewest connections beside it."""
    told = document["promise"]
    if told is None:
        return ["the bundle has no report, and so no promise"]
    batch = "" if document["promised_batch"] == 1 else f" (a batch of {document['promised_batch']})"
    lines = [
        f"promised on {told['processor']}{batch}: undisturbed {told['undisturbed_ms']:.4g} ms; as it was p50 "
        f"{told['p50_ms']:.4g} ms, p90 {told['p90_ms']:.4g} ms, p99 {told['p99_ms']:.4g} ms; a call from Python adds "
        f"{told['call_ms']:.2g} ms"
    ]
    if told["budget_ms"]:
        lines.append(f"budget: {told['budget_ms']:.4g} ms ({told['budget']}), {told['outcome']} when it was exported")
    fewest = min(document["levels"], key=lambda row: row["concurrency"])
    for name in ("p50", "p90", "p99"):
        here, there = fewest["inference_ms"].get(name), told[f"{name}_ms"] + told["call_ms"]
        if here is not None:
            at = f"{fewest['concurrency']} at once, inference {name}"
            lines.append(f"{at}: {here:.4g} ms, {here / there:.2f} times the promised {there:.4g} ms with the call")
    return lines + [f"note: {note}" for note in document["notes"]]


def percentiles(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return dict.fromkeys(("p50", "p90", "p99", "worst"), values[0]) if values else {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "worst": max(values)}


def _made_up(how: dict[str, Any]) -> list[bytes]:
    """PNG files of the network's own size, of noise."""
    return [_png(random.Random(seed), how) for seed in range(MADE_UP_IMAGES)]


def _png(rng: random.Random, how: dict[str, Any]) -> bytes:
    width, height, channels = how["width"], how["height"], how["channels"]
    rows = b"".join(b"\0" + rng.randbytes(width * channels) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _case(base: str, host: str, image: bytes) -> LoadCase:
    asked = urllib.request.Request(f"{base}/classify?top=1", data=image, headers={"Content-Type": "image/png"})
    with urllib.request.urlopen(asked, timeout=SILENCE_S) as answer:
        best = BEST.search(answer.read())
    assert best is not None, "the service answers with classes"
    head = f"POST /classify?top=1 HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(image)}\r\n\r\n"
    return LoadCase(head.encode() + image, best[1])


def _memory(base: str) -> float | None:
    found = re.search(r"^process_resident_memory_bytes (\S+)$", _get(f"{base}/metrics").decode(), re.MULTILINE)
    return float(found[1]) if found else None


def _mib(count: float | None) -> str:
    return "unknown" if count is None else f"{count / (1 << 20):.1f} MiB"


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SILENCE_S) as answer:
        return bytes(answer.read())


def _is_loopback(host: str) -> bool:
    found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    return all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--requests", type=int, default=100_000, help="of all concurrencies together (default: 100000)")
    parser.add_argument("--concurrency", type=_numbers, default=(1, 2, 4, 8, 16), help="default: 1,2,4,8,16")
    parser.add_argument("--image", type=Path, nargs="+", default=[], help="default: noise of the network's own size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument("--elsewhere", action="store_true", help="the service may be on another machine")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(one) for one in text.split(","))
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError("must be numbers from 1, such as 1,4,16")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
