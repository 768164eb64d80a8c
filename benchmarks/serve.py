"""Does a service keep what the bundle promised? 100,000 requests from another process, at several concurrencies.

    python benchmarks/serve.py                       # two bundles, 120,000 requests: about ten minutes
    python benchmarks/serve.py runs/fashion/bundles/cpu-1t
    python benchmarks/serve.py --requests 2000       # a try; nothing is stored below 100,000 requests

Starts `examples/serve/serve.py` as a process and loads it with `examples/serve/load.py` as another. Then it is sent
what it has to refuse, while it is loaded further, and stopped with a request in flight. Without a bundle it makes two,
of networks with random weights, whose latency is that of trained ones: a small one of `fashion` with PNG files of its
own size, and one of `imagenet` with JPEG files of 500 x 375, which gets a fifth of the requests. It fails if a request
failed, if anything was answered 500, if memory grew by more than 10 % after the first concurrency, or if the process
did not end with 0. Results go to benchmarks/results/serve.json.
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import deploynas as dn
from deploynas.device import Device
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.provenance import NetworkLineage
from deploynas.training.untrained import RANDOM, data_or_random, write_untrained

ROOT = Path(__file__).parent.parent
SERVE = ROOT / "examples" / "serve"
RESULTS = Path(__file__).parent / "results" / "serve.json"
STORED_FROM = 100_000  # requests
MAY_GROW = 0.1


@dataclass(frozen=True)
class UnderLoad:
    bundle: Path
    requests: int
    images: tuple[Path, ...] = ()  # none: noise of the network's own size


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        device = Device.load(arguments.device)
        given = [UnderLoad(path, arguments.requests) for path in arguments.bundles]
        served = given or list(_made(Path(folder), device, arguments.requests))
        rows = [_row(one, arguments, Path(folder)) for one in served]
    document = {
        "created": now(),
        "command": " ".join(["python", *sys.argv]),
        "hardware": hardware().model_dump(),
        "versions": versions(),
        "load": load_average(),
        "options": arguments.option,
        "services": rows,
    }
    wrong = [f"{row['load']['model']}: {what}" for row in rows for what in row["wrong"]]
    print("\n".join(wrong) if wrong else "no error, no growth, every stop clean")
    if arguments.requests >= STORED_FROM:
        RESULTS.parent.mkdir(exist_ok=True)
        write_json(RESULTS, document)
    return 1 if wrong else 0


def _made(folder: Path, device: Device, requests: int) -> Iterator[UnderLoad]:
    for name, share in (("fashion", 1), ("imagenet", 5)):
        space = dn.Space.load(name)
        network = write_untrained(
            space.sample(np.random.default_rng(0)), data_or_random(RANDOM, space), folder / name, NetworkLineage()
        )
        print(f"exporting and measuring a network of {name}", file=sys.stderr, flush=True)
        bundle = dn.export(network, device, folder / f"{name}-bundle").folder
        images = () if name == "fashion" else tuple(_photographs(folder))
        yield UnderLoad(bundle, requests // share, images)


def _photographs(folder: Path) -> Iterator[Path]:
    """As large as they are on the web, and as smooth: noise would take a decoder far longer."""
    rng = np.random.default_rng(0)
    for number in range(16):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        path = folder / f"{number}.jpg"
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
        yield path


def _row(served: UnderLoad, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with _service(served.bundle, arguments.option) as (process, port):
        load = _loaded(port, served, arguments.concurrency, folder)
        with ThreadPoolExecutor(1) as beside:
            further = beside.submit(_loaded, port, replace(served, requests=served.requests // 10), "4", folder)
            refused = _refused(port, load["model"], arguments.refused)
        memory = _memory(port)
        answered, exit_code, seconds = _stopped(process, port)
    return {
        "load": load,
        "load_beside_refused": further.result(),
        "refused": {str(status): count for status, count in sorted(refused.items(), key=str)},
        "memory_at_the_end_bytes": memory,
        "stop": {"in_flight": answered, "exit_code": exit_code, "seconds": round(seconds, 3)},
        "wrong": [*_wrong(load, refused, answered, exit_code), *_failed(further.result())],
    }


def _wrong(load: dict[str, Any], refused: Counter[int | str], answered: int | str, exit_code: int) -> Iterator[str]:
    yield from _failed(load)
    strange = {status: count for status, count in refused.items() if status not in (400, 408, 413, 415, 422, 503)}
    if strange:
        yield f"what had to be refused was answered {strange}"
    first, last = load["levels"][0]["memory_after_bytes"], load["levels"][-1]["memory_after_bytes"]
    if first and last > first * (1 + MAY_GROW):
        yield f"memory grew from {first:.0f} to {last:.0f} bytes"
    if answered != 200 or exit_code != 0:
        yield f"stopped: the request in flight was answered {answered}, the exit code was {exit_code}"


def _failed(load: dict[str, Any]) -> Iterator[str]:
    if load["failed"]:
        yield f"{load['failed']} of {load['requests']} requests failed"


@contextmanager
def _service(bundle: Path, options: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, str(SERVE / "serve.py"), str(bundle), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
        while _asked(port, "GET", "/readyz")[0] != 200:
            time.sleep(0.1)
        yield process, port
    finally:
        process.kill()
        process.wait()


def _loaded(port: int, served: UnderLoad, concurrency: str, folder: Path) -> dict[str, Any]:
    stored = folder / f"load-{concurrency}.json"
    command = [sys.executable, str(SERVE / "load.py"), f"http://127.0.0.1:{port}", "--json", str(stored)]
    command += ["--requests", str(served.requests), "--concurrency", concurrency]
    subprocess.run([*command, *(["--image", *map(str, served.images)] if served.images else [])], check=False)
    return dict(json.loads(stored.read_text()))


def _refused(port: int, model: str, count: int) -> Counter[int | str]:
    """Statuses of requests that no service may serve, while others are served."""
    wrong = list(_wrong_bodies(model))

    def send(number: int) -> int | str:
        path, body = wrong[number % len(wrong)]
        try:
            return _asked(port, "POST", path, body)[0]
        except (OSError, HTTPException) as error:
            return type(error).__name__

    with ThreadPoolExecutor(8) as pool:
        return Counter(pool.map(send, range(count)))


def _wrong_bodies(model: str) -> Iterator[tuple[str, bytes]]:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8)).save(file, "PNG")
    image, bomb = file.getvalue(), io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(bomb, "PNG")
    yield "/classify", b"not an image"
    yield "/classify", b""
    yield "/classify", image[: len(image) // 2]
    yield "/classify", bomb.getvalue()
    yield "/classify?top=-1", image
    yield "/classify", b"x" * 12_000_000
    yield f"/v2/models/{model}/infer", b'{"inputs": ['


def _stopped(process: subprocess.Popen[str], port: int) -> tuple[int | str, int, float]:
    """The answer to a request whose body was half there, the exit code, and how long it took."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "PNG")
    body = file.getvalue()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("POST", "/classify?top=1")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[: len(body) // 2])
    time.sleep(0.2)
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    connection.send(body[len(body) // 2 :])
    answered: int | str = connection.getresponse().status
    return answered, process.wait(60), time.perf_counter() - begun


def _memory(port: int) -> float | None:
    text = _asked(port, "GET", "/metrics")[1].decode()
    found = [line for line in text.splitlines() if line.startswith("process_resident_memory_bytes ")]
    return float(found[0].split()[1]) if found else None


def _asked(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # a body that is too large is not read to its end
            connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="*", help="default: two that are made for it")
    parser.add_argument("--device", default="cpu-1t", help="that the two are made for")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", default="1,2,4,8,16")
    parser.add_argument("--refused", type=int, default=2_000, help="requests that have to be refused")
    parser.add_argument("--option", nargs="*", default=[], help="more for serve.py, as `--option=--max-batch=8`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
