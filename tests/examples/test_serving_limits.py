"""What the service refuses to start with, how it stops, and what it does with more than it can do at once."""

from __future__ import annotations

import ast
import io
import json
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from running_service import PATIENCE_S, SERVE, Running, received, running, start

RNG = np.random.default_rng(0)


def image(width: int = 30, height: int = 24) -> bytes:
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (height, width), dtype=np.uint8)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def changed(bundle: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy with another manifest."""
    copy = folder / "changed"
    shutil.copytree(bundle, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def opened_as(**session: object) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["about"]["session"].update(session)


def refusal(bundle: Path, *options: str) -> tuple[int, str]:
    """Exit code and what it said."""
    process = start(bundle, *options)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "" and "Traceback" not in err
    return process.returncode, err


@pytest.mark.parametrize("path", ["model.onnx", "predict.py", "report.json"])
def test_a_changed_file_is_refused(bundle: Path, tmp_path: Path, path: str) -> None:
    copy = changed(bundle, tmp_path, lambda manifest: None)
    with (copy / path).open("ab") as file:
        file.write(b"\n")
    code, said = refusal(copy)
    assert code == 2 and path in said and "SHA-256" in said


def test_what_is_no_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path)[0] == 2
    (tmp_path / "manifest.json").write_text("[]")
    assert refusal(tmp_path)[0] == 2
    code, said = refusal(bundle, "--model", "model.int8.onnx")
    assert code == 2 and "model.onnx" in said
    earlier = changed(bundle, tmp_path, lambda manifest: manifest["about"].pop("session"))
    code, said = refusal(earlier)
    assert code == 2 and "export it again" in said


def test_a_provider_that_is_not_here_is_refused_unless_the_cpu_will_do(bundle: Path, tmp_path: Path) -> None:
    elsewhere = changed(bundle, tmp_path, opened_as(provider="QNNExecutionProvider", provider_options={"x": "1"}))
    code, said = refusal(elsewhere)
    assert code == 2 and "QNNExecutionProvider" in said and "--allow-fallback" in said
    with running(elsewhere, "--allow-fallback") as service:
        about = service.ask("GET", "/").json
        assert about["computed_by"]["provider"] == "CPUExecutionProvider"
        assert any("QNNExecutionProvider" in note for note in about["notes"])
        assert service.classify(image()).status == 200


def test_a_bundle_without_a_report_promises_what_its_timings_say(bundle: Path, tmp_path: Path) -> None:
    """As an ensemble's."""

    def without(manifest: dict[str, Any]) -> None:
        manifest["files"] = [file for file in manifest["files"] if file["path"] != "report.json"]

    copy = changed(bundle, tmp_path, without)
    told = json.loads((bundle / "bench.fp32.json").read_text())["timing"]
    with running(copy) as service:
        about = service.ask("GET", "/").json
        assert about["promise"]["undisturbed_ms"] == told["undisturbed"]["latency_ms"]
        assert about["promise"]["budget_ms"] is None and about["model"] == "changed"


def test_a_port_that_is_taken_is_said(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refusal(bundle, "--port", str(taken.getsockname()[1]))
    assert code == 1 and "cannot be had" in said


def test_a_fixed_batch_is_filled_up_and_shares_nothing(bundle: Path, tmp_path: Path) -> None:
    fixed, pictures = changed(bundle, tmp_path, opened_as(batch=4)), [image() for _ in range(3)]
    code, said = refusal(fixed, "--max-batch", "8")
    assert code == 2 and "4 at a time" in said
    with running(bundle) as free, running(fixed) as service:
        assert service.ask("GET", "/v2/models/tiny").json["inputs"][0]["shape"] == [4, 1, 16, 12]
        for one in pictures:
            alone, filled = (there.classify(one).json["classes"] for there in (free, service))
            assert [c["label"] for c in alone] == [c["label"] for c in filled]
            np.testing.assert_allclose([c["p"] for c in alone], [c["p"] for c in filled], rtol=1e-4)
        six = {"name": "input", "datatype": "FP32", "shape": [6, 1, 16, 12], "data": [0.5] * (6 * 16 * 12)}
        answer = service.ask("POST", "/v2/models/tiny/infer", json.dumps({"inputs": [six]}).encode())
        assert answer.status == 200 and answer.json["outputs"][0]["shape"] == [6, 3]


def test_whoever_comes_when_all_are_busy_is_sent_away(bundle: Path) -> None:
    """One thread, nobody may wait, and images that take long to decode."""
    large = image(4000, 2000)
    with running(bundle, "--workers", "1", "--queue", "0") as service, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(service.classify, [large] * 16))
        assert {answer.status for answer in answers} == {200, 503}
        assert all(answer.headers["retry-after"] for answer in answers if answer.status == 503)
        assert service.classify(large).status == 200


def test_what_is_held_for_all_requests_together_is_bounded(bundle: Path) -> None:
    """Ten clients that have sent nearly a megabyte each, where two megabytes may be held."""
    with running(bundle, "--max-held-mb", "2") as service:
        head = b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        clients = [service.connect() for _ in range(10)]
        for client in clients:
            client.sendall(head + b"x" * 900_000)
        deadline = time.monotonic() + PATIENCE_S
        refused = 'http_requests_total{route="/classify",status="503"}'
        while service.metric(refused) < 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert service.metric(refused) >= 8 and service.metric("bodies_held_bytes") <= 2e6
        for client in clients:
            client.close()
        assert service.classify(image()).status == 200


def test_requests_share_inferences_where_that_is_asked_for(bundle: Path) -> None:
    pictures = [image() for _ in range(40)]
    with running(bundle, "--max-batch", "4", "--max-wait-ms", "50") as service, ThreadPoolExecutor(8) as pool:
        alone = [service.classify(one).json["classes"] for one in pictures]
        together = [answer.json["classes"] for answer in pool.map(service.classify, pictures)]
        shared = sum(service.metric(f'inference_rows_total{{rows="{rows}"}}') for rows in (2, 3, 4))
        assert shared > 0 and service.metric('inference_rows_total{rows="5"}') == 0
    for one, other in zip(alone, together, strict=True):
        odds = {guess["label"]: guess["p"] for guess in other}
        for guess in one:
            assert odds[guess["label"]] == pytest.approx(guess["p"], rel=1e-4)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_is_in_flight_and_exits_0(bundle: Path, how: signal.Signals) -> None:
    body = image()
    with running(bundle, "--drain-s", "0.5") as service, service.connect() as connection, service.connect() as idle:
        connection.sendall(f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body[:100])
        wait_until(lambda: service.metric("bodies_held_bytes") == 100)
        service.process.send_signal(how)
        wait_until(lambda: service.ask("GET", "/readyz").status == 503)  # it says so while it still listens
        wait_until(lambda: not listens(service))
        connection.sendall(body[100:])
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 200 ") and b'"classes"' in answer
        assert service.process.wait(PATIENCE_S) == 0
        assert received(idle) == b""
        assert service.process.stderr and "Traceback" not in service.process.stderr.read()


def test_a_stop_does_not_wait_for_ever(bundle: Path) -> None:
    with running(bundle, "--stop-s", "1", "--body-s", "600") as service, service.connect() as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
        wait_until(lambda: service.metric("bodies_held_bytes") == 1)
        assert service.stop(signal.SIGTERM) == 0


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def listens(service: Running) -> bool:
    try:
        with service.connect():
            return True
    except ConnectionRefusedError:
        return False


def test_it_needs_what_its_requirements_bring_and_nothing_else() -> None:
    files = {path.stem: ast.parse(path.read_text()) for path in SERVE.glob("*.py")}
    nodes = [node for tree in files.values() for node in ast.walk(tree)]
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    others = {name.partition(".")[0] for name in named} - set(files) - sys.stdlib_module_names
    # starlette comes with fastapi and h11 with uvicorn; onnxruntime is imported by the bundle's own predict.py
    assert others == {"fastapi", "starlette", "uvicorn", "h11", "numpy", "PIL"}
