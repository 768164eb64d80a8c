"""Serve the model of a bundle over HTTP, as it was measured: same threads, same provider, same options.

    pip install -r requirements.txt
    python serve.py BUNDLE --port 8000
    curl --data-binary @image.png "http://127.0.0.1:8000/classify?top=3"

It starts only with a bundle whose files are unchanged, on the provider that was measured. Exit codes: 0 stopped by
SIGTERM or SIGINT after what was in flight was answered, 1 the address cannot be had, 2 refused to start.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
from pathlib import Path

import uvicorn
from bodies import BodyLimits
from bundle import Refused, open_bundle
from connections import GracefulServer, ImpatientProtocol
from engine import Limits
from network import ServedNetwork, open_network
from service import Service, application

LOG = logging.getLogger("serve")


def main() -> int:
    options = _options()
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.INFO)
    try:
        service = _service(options)
    except Refused as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    try:
        listening = _listening(options.host, options.port)
    except OSError as error:
        print(f"error: {options.host}:{options.port} cannot be had: {error.strerror}", file=sys.stderr)
        return 1
    for line in _said(service):
        LOG.info(line)
    ImpatientProtocol.headers_s = options.headers_s
    config = uvicorn.Config(
        application(service),
        http=ImpatientProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level="info" if options.access_log else "error",  # strangers' mistakes are counted, not written down
        access_log=options.access_log,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=options.max_connections,
        timeout_keep_alive=options.keep_alive_s,
        timeout_graceful_shutdown=options.stop_s,
    )
    host, port = listening.getsockname()[:2]
    print(f"serving {service.network.name} on http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
    server = GracefulServer(config, service.stop, options.drain_s)
    try:
        asyncio.run(_run(server, service, listening))
    except Refused as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    LOG.info("stopped")
    return 0


async def _run(server: GracefulServer, service: Service, listening: socket.socket) -> None:
    """Answers that it lives while it warms up."""
    warming = asyncio.create_task(service.warm_up())
    warming.add_done_callback(lambda _: server.end_unless(service.warm))
    await server.serve(sockets=[listening])
    if not warming.done():
        warming.cancel()
    elif not warming.cancelled():
        warming.result()  # what went wrong


def _service(options: argparse.Namespace) -> Service:
    network = open_network(open_bundle(options.bundle, options.model), options.allow_fallback)
    if options.max_batch > 1 and network.fixed_batch is not None:
        raise Refused(f"--max-batch needs a free batch; {network.provider} computes {network.fixed_batch} at a time")
    limits = Limits(options.workers, options.queue, options.wait_s, options.max_batch, options.max_wait_ms)
    bodies = BodyLimits(
        each=int(options.max_body_mb * 1e6), together=int(options.max_held_mb * 1e6), time_s=options.body_s
    )
    return Service(network, limits, bodies, int(options.max_megapixels * 1e6), max(options.max_rows, options.max_batch))


def _said(service: Service) -> list[str]:
    network: ServedNetwork = service.network
    said = [f"{network.provider}, {network.threads} thread(s) an inference, {service.engine.workers} at once"]
    if network.promise:
        told = network.promise
        budget = f", budget {told.budget_ms:.4g} ms ({told.budget})" if told.budget_ms else ""
        said.append(f"promised: undisturbed {told.undisturbed_ms:.4g} ms, p99 {told.p99_ms:.4g} ms as it was{budget}")
    return [*said, *(f"note: {note}" for note in network.notes)]


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=512)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve the model of a bundle over HTTP, as it was measured.")
    add = parser.add_argument
    add("bundle", type=Path)
    add("--model", help="another of the bundle's models than the one to deploy")
    add("--host", default="127.0.0.1", help="default: 127.0.0.1, which only this machine reaches")
    add("--port", type=_whole(0), default=8000, help="0: any that is free (default: 8000)")
    add("--allow-fallback", action="store_true", help="serve on the CPU if the measured provider is not here")
    add("--workers", type=_whole(1), help="threads (default: as many as inferences have cores)")
    add("--queue", type=_whole(0), default=64, help="requests that may wait; more are answered 503 (default: 64)")
    add("--wait-s", type=_seconds, default=10.0, help="longest wait in the queue (default: 10)")
    add("--max-batch", type=_whole(1), default=1, help="images of several requests in one inference (default: 1, off)")
    add("--max-wait-ms", type=_seconds, default=2.0, help="how long the first of a batch waits (default: 2)")
    add("--max-rows", type=_whole(1), default=32, help="images in one tensor (default: 32)")
    add("--max-body-mb", type=_seconds, default=10.0, help="of one request, in MB (default: 10)")
    add("--max-held-mb", type=_seconds, default=256.0, help="of all requests together, in MB (default: 256)")
    add("--max-megapixels", type=_seconds, default=25.0, help="that an image may have (default: 25)")
    add("--headers-s", type=_seconds, default=10.0, help="longest time for headers to arrive (default: 10)")
    add("--body-s", type=_seconds, default=15.0, help="longest time for a body to arrive (default: 15)")
    add("--keep-alive-s", type=_whole(1), default=15, help="how long an idle connection is kept (default: 15)")
    add("--max-connections", type=_whole(1), default=512, help="more are answered 503 (default: 512)")
    add("--drain-s", type=_seconds, default=0.0, help="not ready, but serving, before it stops (default: 0)")
    add("--stop-s", type=_whole(1), default=20, help="longest wait for what is in flight when stopped (default: 20)")
    add("--access-log", action="store_true", help="a line for each request")
    return parser.parse_args()


def _whole(least: int):  # type: ignore[no-untyped-def]
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is below {least}")
        return value

    return whole_number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to a million")
    return value


if __name__ == "__main__":
    sys.exit(main())
