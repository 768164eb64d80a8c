"""The service answers as `predict.py` does, and whatever else it is sent is refused: never a crash, never a 500."""

from __future__ import annotations

import io
import json
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from running_service import SERVE, Running, received, running

from deploynas.report.document import ReportFile

MAX_BODY = 1_000_000
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[Running]:
    limits = ["--max-body-mb", "1", "--headers-s", "1", "--body-s", "1"]
    with running(bundle, *limits) as found:
        yield found
        text = found.ask("GET", "/metrics").body.decode()
        assert 'status="500"' not in text and found.process.poll() is None
        assert found.metric("requests_inside") == found.metric("bodies_held_bytes") == 0


def picture(width: int = 50, height: int = 40, mode: str = "RGB") -> Image.Image:
    pixels = RNG.integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_of_size(width: int, height: int, rows: int | None = None) -> bytes:
    """White, one bit a pixel, and far smaller than its pixels."""
    packer, line = zlib.compressobj(9), b"\0" + b"\xff" * ((width + 7) // 8)
    data = b"".join(packer.compress(line) for _ in range(height if rows is None else rows)) + packer.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")]
    packed = [struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def images_of_all_kinds() -> dict[str, bytes]:
    several = {"save_all": True, "append_images": [picture(), picture()]}
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees, which training does not do either
    deep = Image.fromarray(RNG.integers(0, 65536, (30, 30), dtype=np.uint16))
    return {
        "grey.png": encoded(picture(mode="L"), "PNG"),
        "colour.png": encoded(picture(), "PNG"),
        "alpha.png": encoded(picture(mode="RGBA"), "PNG"),
        "palette.png": encoded(picture(mode="P"), "PNG"),
        "transparent-palette.png": encoded(picture(mode="P"), "PNG", transparency=3),
        "one-bit.png": encoded(picture(mode="1"), "PNG"),
        "sixteen-bits.png": encoded(deep, "PNG"),
        "plain.jpg": encoded(picture(), "JPEG"),
        "progressive.jpg": encoded(picture(), "JPEG", progressive=True),
        "cmyk.jpg": encoded(picture(mode="CMYK"), "JPEG"),
        "turned.jpg": encoded(picture(), "JPEG", exif=exif),
        "two.jpg": encoded(picture(), "MPO", save_all=True, append_images=[picture()]),
        "lossless.webp": encoded(picture(mode="RGBA"), "WEBP", lossless=True),
        "moving.webp": encoded(picture(), "WEBP", **several),
        "moving.png": encoded(picture(), "PNG", **several),
        "moving.gif": encoded(picture(mode="P"), "GIF", **several),
        "plain.bmp": encoded(picture(), "BMP"),
        "one-pixel.png": encoded(picture(1, 1), "PNG"),
        "oblong.png": encoded(picture(4, 900), "PNG"),
    }


def test_it_answers_what_predict_answers(service: Running, bundle: Path, tmp_path: Path) -> None:
    images = images_of_all_kinds()
    for name, content in images.items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, str(bundle / "predict.py"), *images, "--json", "--top", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for expected in json.loads(done.stdout):
        answer = service.classify(images[expected["image"]])
        assert answer.status == 200, (expected["image"], answer)
        assert answer.json == {"classes": expected["classes"]}, expected["image"]


def test_top_is_how_many_classes_are_named(service: Running) -> None:
    image = encoded(picture(), "PNG")
    everything = service.classify(image).json["classes"]
    assert len(everything) == 3 and sum(one["p"] for one in everything) == pytest.approx(1, abs=1e-5)
    for top, count in (("1", 1), ("2", 2), ("3", 3), ("999999999", 3)):
        assert service.classify(image, f"?top={top}").json["classes"] == everything[:count]
    for top in ("0", "-1", "x", "1.5", "", "%D9%A3", "9" * 5000):
        answer = service.classify(image, f"?top={top}")
        assert answer.status == 400 and "top" in answer.json["error"]


REFUSED: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", 400),
    "text": (lambda: b"not an image", 415),
    "a kind that is not read": (lambda: encoded(picture(), "TIFF"), 415),
    "a program": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415),
    "half a png": (lambda: encoded(picture(), "PNG")[:2000], 400),
    "half a jpeg": (lambda: encoded(picture(), "JPEG")[:900], 400),
    "half a gif": (lambda: encoded(picture(mode="P"), "GIF")[:900], 400),
    "half a webp": (lambda: encoded(picture(), "WEBP", lossless=True)[:900], 400),
    "half a bmp": (lambda: encoded(picture(), "BMP")[:900], 400),
    "the start of a png": (lambda: encoded(picture(), "PNG")[:20], 400),
    "100 megapixels": (lambda: png_of_size(10_000, 10_000), 413),
    "the largest png there is": (lambda: png_of_size((1 << 31) - 1, (1 << 31) - 1, rows=0), 413),
    "oblong, and huge when its shorter side is 20": (lambda: png_of_size(1, 2_000_000), 413),
    "a webp with a huge canvas": (lambda: b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + b"\0" * 4 + b"\xff" * 6, 413),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_image_of_a_fair_size_is_refused(service: Running, what: str) -> None:
    content, status = REFUSED[what]
    body = content()
    assert len(body) < 100_000  # none is refused for its bytes
    answer = service.classify(body)
    assert (answer.status, list(answer.json)) == (status, ["error"]), answer


def test_memory_stays_where_it_was_when_bombs_come(service: Running) -> None:
    bomb = png_of_size(10_000, 10_000)
    service.classify(bomb)
    before = service.metric("process_resident_memory_bytes")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(service.classify, [bomb] * 200))
    assert {answer.status for answer in answers} == {413}
    assert service.metric("process_resident_memory_bytes") - before < 10_000 * 10_000 / 8  # not even one, in bits


def test_damaged_images_are_answered_or_refused(service: Running) -> None:
    """Bytes of real images changed at random places."""
    rng = np.random.default_rng(1)
    images = list(images_of_all_kinds().values())
    for _ in range(400):
        content = bytearray(images[rng.integers(len(images))])
        for _ in range(rng.integers(1, 9)):
            content[rng.integers(len(content))] = rng.integers(256)
        answer = service.classify(bytes(content))
        assert answer.status in (200, 400, 413, 415), (answer, bytes(content))


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_a_body_that_is_not_the_file_itself_is_told_so(service: Running, headers: dict[str, str]) -> None:
    answer = service.ask("POST", "/classify", encoded(picture(), "PNG"), headers)
    assert answer.status == 415


def spoken(service: Running, *pieces: bytes, half_close: bool = False) -> bytes:
    """What comes back until the service closes."""
    with service.connect() as connection:
        for piece in pieces:
            connection.sendall(piece)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return received(connection)


HEAD = b"POST /classify HTTP/1.1\r\nHost: x\r\n"


def test_a_large_body_is_refused_by_its_headers(service: Running) -> None:
    answer = spoken(service, HEAD + b"Content-Length: 50000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer.lower()


def test_a_large_body_is_not_read_to_its_end(service: Running) -> None:
    """Chunked, without a length: far less of 50 MB goes out before the connection is closed."""
    chunk, sent = b"10000\r\n" + b"x" * 65_536 + b"\r\n", 0
    with service.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(50_000_000 // 65_536):
                connection.sendall(chunk)
                sent += 65_536
        except (BrokenPipeError, ConnectionResetError):
            pass
        buffers = 2 * sum(connection.getsockopt(socket.SOL_SOCKET, n) for n in (socket.SO_SNDBUF, socket.SO_RCVBUF))
        assert sent < MAX_BODY + max(buffers, 16_000_000)
    assert service.metric('http_requests_total{route="/classify",status="413"}') > 0
    assert service.metric("process_resident_memory_bytes") < 1e9


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"Content-Length: five\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nnot a length\r\n",
        b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"\0\r\n\r\n",
    ],
)
def test_headers_that_lie_are_refused(service: Running, headers: bytes) -> None:
    answer = spoken(service, HEAD + headers)
    assert answer.split(b" ")[1] in (b"400", b"413", b"431", b"501"), answer


def test_half_a_body_is_answered_to_a_client_that_still_listens(service: Running) -> None:
    image = encoded(picture(), "PNG")
    head = HEAD + f"Content-Length: {len(image)}\r\n\r\n".encode()
    assert spoken(service, head, image[:500], half_close=True).startswith(b"HTTP/1.1 400 ")
    assert spoken(service, head, image, half_close=True).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_leaves_in_the_middle_is_forgotten(service: Running) -> None:
    for _ in range(20):
        with service.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 500000\r\n\r\n" + b"x" * 100_000)
    assert service.classify(encoded(picture(), "PNG")).status == 200


def test_slow_clients_are_given_up(service: Running) -> None:
    """Nothing, half a header, and half a body: one second is what this service allows."""
    assert spoken(service) == b""
    assert spoken(service, HEAD) == b""
    assert spoken(service, HEAD + b"Content-Length: 1000\r\n\r\nx").startswith(b"HTTP/1.1 408 ")


def infer(service: Running, tensor: dict[str, object], **more: object) -> object:
    document = json.dumps({"inputs": [tensor], **more}).encode()
    return service.ask("POST", "/v2/models/tiny/infer", document)


def a_tensor(images: np.ndarray, **changes: object) -> dict[str, object]:
    about = {"name": "input", "datatype": "FP32", "shape": list(images.shape), "data": images.tolist()}
    return {**about, **changes}


def test_tensors_are_answered_with_the_logits_of_the_file(service: Running, bundle: Path) -> None:
    described = service.ask("GET", "/v2/models/tiny").json
    assert described["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 1, 16, 12]}]
    images = RNG.standard_normal((5, 1, 16, 12)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(bundle / "model.onnx").run(None, {"input": images})
    for data in (images.tolist(), images.ravel().tolist()):
        answer = infer(service, a_tensor(images, data=data), id="seven")
        assert (answer.status, answer.json["id"], answer.json["model_name"]) == (200, "seven", "tiny")
        (output,) = answer.json["outputs"]
        assert (output["name"], output["datatype"], output["shape"]) == ("logits", "FP32", [5, 3])
        np.testing.assert_allclose(np.reshape(output["data"], (5, 3)), expected, rtol=1e-5, atol=1e-5)


ONE = np.zeros((1, 1, 16, 12), np.float32)
NOT_NUMBERS = ["a"] * ONE.size


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1, 1, 12, 16]},
        {"shape": [0, 1, 16, 12], "data": []},
        {"shape": [2, 1, 16, 12]},
        {"shape": [-1, 1, 16, 12]},
        {"shape": [True, 1, 16, 12]},
        {"shape": [10**9, 1, 16, 12]},
        {"shape": [1, 16, 12]},
        {"shape": "1,1,16,12"},
        {"shape": None},
        {"datatype": "INT64"},
        {"datatype": None},
        {"name": "another"},
        {"data": None},
        {"data": NOT_NUMBERS},
        {"data": [True] * ONE.size},
        {"data": [None] * ONE.size},
        {"data": [10**400] * ONE.size},
        {"data": [1e39] * ONE.size},
        {"data": [float("nan")] * ONE.size},
        {"data": [float("inf")] * ONE.size},
        {"data": [[1, 2], [3]]},
        {"data": {"0": 1}},
        {"data": 7},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_a_wrong_tensor_is_refused(service: Running, changes: dict[str, object]) -> None:
    answer = infer(service, a_tensor(ONE, **changes))
    assert answer.status == 400 and answer.json["error"]


@pytest.mark.parametrize(
    "body, status",
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"{}", 400),
        (b'{"inputs": []}', 400),
        (b'{"inputs": [7]}', 400),
        (b'{"inputs": {"0": 1}}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"inputs": ' + b"[" * 100_000, 400),
        (b"9" * 10_000, 400),
        (b" " * MAX_BODY, 413),
        (json.dumps({"inputs": [a_tensor(ONE)], "outputs": [{"name": "x"}]}).encode(), 400),
        (json.dumps({"inputs": [a_tensor(ONE)], "outputs": 7}).encode(), 400),
        (json.dumps({"inputs": [a_tensor(ONE)], "id": ["x"]}).encode(), 400),
        (json.dumps({"inputs": [a_tensor(ONE), a_tensor(ONE)]}).encode(), 400),
        (json.dumps({"inputs": [a_tensor(ONE + 3e38)]}).encode(), 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_document_is_refused(service: Running, body: bytes, status: int) -> None:
    assert service.ask("POST", "/v2/models/tiny/infer", body).status == status


def test_other_paths_and_methods_are_refused_in_the_same_form(service: Running) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/classify", 405),
        ("DELETE", "/", 405),
        ("POST", "/v2/models/another/infer", 404),
        ("GET", "/v2/models/another", 404),
        ("GET", "/../../etc/passwd", 404),
    ):
        answer = service.ask(method, path)
        assert (answer.status, list(answer.json)) == (status, ["error"])


def test_it_says_what_was_promised_and_what_it_does(service: Running, bundle: Path) -> None:
    about, report = service.ask("GET", "/").json, ReportFile.load(bundle)
    timing = report.shipped.timing
    assert timing is not None
    assert about["promise"]["undisturbed_ms"] == timing.undisturbed.latency_ms
    assert about["promise"]["p99_ms"] == timing.clock.p99_ms and about["promise"]["budget_ms"] == 1000.0
    assert about["computed_by"]["provider"] == "CPUExecutionProvider" and about["computed_by"]["threads"] == 1
    assert about["classes"] == ["0", "1", "2"] and about["notes"] == []
    for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/v2/models/tiny/ready", "/v2"):
        assert service.ask("GET", path).status == 200


def test_metrics_count_and_measure(service: Running) -> None:
    def counted() -> tuple[float, float]:
        good = 'http_requests_total{route="/classify",status="200"}'
        return service.metric(good), service.metric("inference_seconds_count")

    requests, inferences = counted()
    answer = service.classify(encoded(picture(), "PNG"))
    steps = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert set(steps) == {"queue", "decode", "infer"} and all(float(ms) > 0 for ms in steps.values())
    assert counted() == (requests + 1, inferences + 1)
    assert service.metric('inference_seconds_bucket{le="+Inf"}') == inferences + 1


def test_load_finds_no_error_and_stores_what_it_saw(service: Running, tmp_path: Path) -> None:
    command = [sys.executable, str(SERVE / "load.py"), f"http://127.0.0.1:{service.port}"]
    command += ["--requests", "300", "--concurrency", "1,6", "--json", str(tmp_path / "load.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "load.json").read_text())
    assert (stored["requests"], stored["failed"]) == (300, 0)
    for level, concurrency in zip(stored["levels"], (1, 6), strict=True):
        waited, inferred = level["request_ms"], level["inference_ms"]
        assert (level["concurrency"], level["requests"]) == (concurrency, 150)
        assert 0 < inferred["p50"] < waited["p50"] <= waited["p90"] <= waited["p99"] <= waited["worst"]
    assert done.stdout.count("| 150 |") == 2 and "undisturbed" in done.stdout


def test_load_leaves_other_machines_alone() -> None:
    command = [sys.executable, str(SERVE / "load.py"), "http://192.0.2.1:80"]  # an address for documentation
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "not this machine" in done.stderr
