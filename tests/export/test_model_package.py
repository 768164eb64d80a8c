"""ONNX Runtime's model package, opened by the runtime itself: which variant it takes, and with which options."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from runtime_packages import OpenPackage, Refused, Runtime, run
from timings import timing

from deploynas import graph
from deploynas.device import Device
from deploynas.export.model_package import COMPONENT, MANIFEST, MeasuredModel, Package, write_model_package
from deploynas.latency.hardware import hardware
from deploynas.latency.provider_session import open_session
from deploynas.latency.session_record import SessionRecord, as_measured
from deploynas.space import Space

CPU_1T = SessionRecord.of(Device.load("cpu-1t"), 1)
linux = pytest.mark.skipif(sys.platform != "linux", reason="counts the process's threads in /proc")


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def package(tiny: Space, tmp_path: Path) -> Package:
    """Two networks that differ, so that their logits tell which one was taken."""
    models = []
    for precision, network in (("int8", tiny.smallest()), ("fp32", tiny.heaviest())):
        path = tmp_path / f"{precision}.onnx"
        path.write_bytes(graph.network(tiny, network, batch=None).SerializeToString())
        models.append(MeasuredModel(path, precision, 0.75, timing(1.0, 1.2)))
    return Package("tiny", "tiny on é \"<b>\" '¦'", "cpu-1t", models, "A “processor”", {"onnxruntime": "1"}, CPU_1T)


def of(package: Package, device: Device, threads: int) -> Package:
    """As if it had been measured on a device."""
    provenance = {"hardware": hardware().model_copy(update={"physical_cores": threads, "cpu_quota": None}).model_dump()}
    return replace(package, device=device.name, session=as_measured(device, provenance))


@contextmanager
def opened(runtime: Runtime, folder: Path) -> Iterator[OpenPackage]:
    package = OpenPackage(runtime, folder)
    yield package
    package.close()


def test_the_runtime_takes_the_recommended_variant_and_computes_the_same(
    runtime: Runtime, package: Package, tiny: Space, tmp_path: Path, rng: np.random.Generator
) -> None:
    images = rng.standard_normal((3, tiny.in_channels, tiny.height, tiny.width)).astype(np.float32)
    for order, models in enumerate((package.models, tuple(reversed(package.models)))):
        folder = tmp_path / f"package{order}"
        write_model_package(folder, replace(package, models=models))
        with opened(runtime, folder) as found:
            assert found.schema_version == 1 and found.components() == [COMPONENT]
            assert found.variants(COMPONENT) == [f"cpu-1t.{model.precision}" for model in models]
            assert {found.provider(COMPONENT, name) for name in found.variants(COMPONENT)} == {"CPUExecutionProvider"}
            with found.session(COMPONENT) as (variant, session):
                assert variant == f"cpu-1t.{models[0].precision}"
                logits = run(runtime, session, images, tiny.classes)
        expected = open_session(models[0].model, Device.load("cpu-1t")).run(None, {"input": images})[0]
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


@linux
@pytest.mark.parametrize("threads", [1, 3])
def test_a_session_of_the_package_has_the_threads_that_were_measured(
    runtime: Runtime, package: Package, threads: int, tmp_path: Path
) -> None:
    """A pool of n threads is n - 1 new ones, and the caller's."""
    device = Device(name="here", provider="cpu", threads=threads)
    write_model_package(tmp_path / "package", of(package, device, threads))
    with opened(runtime, tmp_path / "package") as found:
        before = len(os.listdir("/proc/self/task"))
        with found.session(COMPONENT):
            assert len(os.listdir("/proc/self/task")) - before == threads - 1


@pytest.mark.parametrize("key", ["session.intra_op_num_threads", "session.graph_optimization_level"])
def test_the_runtime_reads_the_options_by_the_names_that_we_write(
    runtime: Runtime, package: Package, key: str, tmp_path: Path
) -> None:
    """It stores any key, and reads few: one that it reads refuses nonsense."""
    write_model_package(tmp_path / "package", package)
    manifest = json.loads((tmp_path / "package" / MANIFEST).read_text())
    said = manifest["components"][COMPONENT]["variants"]["cpu-1t.int8"]["executor_info"]["ort"]["session_options"]
    assert said[key] in ("1", "enable_all")
    said[key] = "nonsense"
    (tmp_path / "package" / MANIFEST).write_text(json.dumps(manifest))
    with (
        opened(runtime, tmp_path / "package") as found,
        pytest.raises(Refused, match="nonsense"),
        found.session(COMPONENT),
    ):
        pass


def test_the_options_are_those_of_the_session_that_is_timed(package: Package, tmp_path: Path) -> None:
    device = Device(
        name="here", provider="cpu", threads="all", session_options={"session.intra_op.allow_spinning": False}
    )
    write_model_package(tmp_path / "package", of(package, device, 7))
    timed = open_session(package.models[0].model, device).get_session_options()
    variants = json.loads((tmp_path / "package" / MANIFEST).read_text())["components"][COMPONENT]["variants"]
    said = variants["here.int8"]["executor_info"]["ort"]["session_options"]
    assert said.pop("session.intra_op_num_threads") == "7"  # of the machine that measured, not of this one
    assert int(said.pop("session.inter_op_num_threads")) == timed.inter_op_num_threads
    assert said.pop("session.graph_optimization_level") == "enable_all"
    assert timed.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert said == {key: timed.get_session_config_entry(key) for key in said}
    assert said["session.intra_op.allow_spinning"] == "0"


def test_figures_stand_beside_each_variant_and_the_folder_names_nothing_outside(
    package: Package, tmp_path: Path
) -> None:
    write_model_package(tmp_path / "package", package)
    text = (tmp_path / "package" / MANIFEST).read_text()
    manifest = json.loads(text)
    assert str(tmp_path) not in text and manifest["layout"] == "portable"
    assert manifest["description"] == package.description
    figures = [
        variant["additional_metadata"]["deploynas"]
        for variant in manifest["components"][COMPONENT]["variants"].values()
    ]
    assert [one["recommended"] for one in figures] == [True, False]
    assert all(one["timing"]["undisturbed"]["latency_ms"] == 1.0 and one["accuracy"] == 0.75 for one in figures)
    assert {p.relative_to(tmp_path / "package").as_posix() for p in (tmp_path / "package").rglob("*.onnx")} == {
        "cpu-1t.int8/model.onnx",
        "cpu-1t.fp32/model.onnx",
    }


def test_what_a_package_cannot_say_of_other_providers_is_written_beside_it(package: Package, tmp_path: Path) -> None:
    """Shapes that are compiled for, variables of the environment; folders of caches are left out."""
    told = {"trt_engine_cache_path": "/somewhere/of/mine", "device_id": 1}
    device = Device(name="gpu", provider="tensorrt", batch=4, provider_options=told)
    write_model_package(tmp_path / "package", of(package, device, 1))
    text = (tmp_path / "package" / MANIFEST).read_text()
    variant = json.loads(text)["components"][COMPONENT]["variants"]["gpu.fp32"]
    assert "/somewhere" not in text and variant["ep"] == "TensorrtExecutionProvider" and "device" not in variant
    figures = variant["additional_metadata"]["deploynas"]
    assert figures["session"]["provider_options"] == {"trt_fp16_enable": "0", "trt_int8_enable": "0", "device_id": "1"}
    assert "provider_options" not in variant["executor_info"]["ort"]  # refused for a provider that is no plug-in
    assert figures["session"]["batch"] == 4 and figures["session"]["environment"] == {"NVIDIA_TF32_OVERRIDE": "0"}


@pytest.mark.parametrize("mistake", ["unknown key", "outside"])
def test_the_runtime_is_as_strict_as_its_description(
    runtime: Runtime, package: Package, mistake: str, tmp_path: Path
) -> None:
    """So that opening a package without a word means something."""
    write_model_package(tmp_path / "package", package)
    manifest = json.loads((tmp_path / "package" / MANIFEST).read_text())
    if mistake == "unknown key":
        manifest["schema"] = "deploynas/manifest"
    else:
        manifest["components"][COMPONENT]["variants"]["cpu-1t.int8"]["executor_info"]["ort"]["model_file"] = "../../x"
    (tmp_path / "package" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Refused), opened(runtime, tmp_path / "package"):
        pass
