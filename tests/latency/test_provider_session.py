"""Sessions on a device's provider: what it is told, which nodes it runs, and whether it computes the right thing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deploynas import graph
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency import provider_session
from deploynas.latency.agreement import TOLERANCE, cpu_outputs, difference, precision_of, require_agreement
from deploynas.latency.device_check import check_device
from deploynas.latency.entries import part_entries
from deploynas.latency.entry import build
from deploynas.latency.facts import facts_here, require_hardware
from deploynas.latency.instruction_sets import instruction_sets
from deploynas.latency.placement import placement_is_told, shape_nodes
from deploynas.latency.provider_session import open_session, provider_options, thread_count
from deploynas.latency.session import Session
from deploynas.providers import PROVIDERS
from deploynas.space import PRESETS, Space

AZURE = "AzureExecutionProvider"  # in every build for Linux; runs none of our operators


@pytest.fixture
def network(tiny: Space, tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(graph.network(tiny, tiny.heaviest(), batch=None), path)
    return path


@pytest.fixture
def shapes_model(tmp_path: Path) -> Path:
    """Flattens what it is given: four nodes compute the shape, one is the work."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "zero"], ["first"], name="first"),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], name="wanted", axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"], name="flat"),
        helper.make_node("Exp", ["flat"], ["y"], name="exp"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("rest", TensorProto.INT64, [1], [-1]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [given], [made], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    path = tmp_path / "shapes.onnx"
    onnx.save(model, path)
    return path


def device(provider: str = "cpu", **settings: object) -> Device:
    return Device.model_validate({"name": "tried", "provider": provider, **settings})


# -- what it is told ---------------------------------------------------------------------------------------------------


def test_the_devices_own_options_win_over_those_of_the_precision(network: Path) -> None:
    told = provider_options(device("cuda", provider_options={"use_tf32": True, "device_id": 1}), network)
    assert told == {"use_tf32": "1", "arena_extend_strategy": "kSameAsRequested", "device_id": "1"}
    assert provider_options(device("cuda"), network)["use_tf32"] == "0"


def test_openvino_hears_of_threads_and_precision_in_its_own_words(network: Path) -> None:
    told = provider_options(device("openvino", threads=3), network)["load_config"]
    assert '"INFERENCE_NUM_THREADS": "3"' in told and '"INFERENCE_PRECISION_HINT": "f32"' in told
    assert "f32" not in provider_options(device("openvino", precision="fp16"), network)["load_config"]
    half = json.loads(provider_options(device("openvino", precision="bf16"), network)["load_config"])
    assert {config["INFERENCE_PRECISION_HINT"] for config in half.values()} == {"bf16"} and set(half) == {"CPU", "GPU"}
    # the option by which a plug-in's hardware is picked is ours
    plugin = device("openvino-plugin", provider_options={"device_type": "GPU"})
    assert "device_type" not in provider_options(plugin, network)
    assert (
        provider_options(device("openvino", provider_options={"device_type": "GPU"}), network)["device_type"] == "GPU"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_no_two_graphs_of_a_profile_share_a_tensorrt_engine(name: str, tmp_path: Path) -> None:
    """Its own key is of the file's and the tensors' names, which all parts share."""
    space, tensorrt = Space.load(name), device("tensorrt", provider_options={"trt_engine_cache_enable": True})
    entries = list(part_entries(space).values())[:: 1 if name == "fashion" else 7]
    graphs, prefixes, path = set(), set(), tmp_path / "model.onnx"
    for entry in entries:
        content = build(entry, space, tensorrt)
        assert isinstance(content, bytes)
        path.write_bytes(content)
        graphs.add(content)
        prefixes.add(provider_options(tensorrt, path)["trt_engine_cache_prefix"])
    assert len(prefixes) == len(graphs) == len(entries)
    half = device("tensorrt", precision="bf16")  # the graphs of fp32
    assert build(entries[-1], space, half) == content
    assert provider_options(half, path)["trt_engine_cache_prefix"] not in prefixes


def test_all_threads_are_those_of_the_cores_it_stays_on() -> None:
    assert thread_count(device(threads="all", cores=[0])) == 1
    assert thread_count(device(threads=3)) == 3


def test_a_provider_that_compiles_gets_the_batch_as_a_fixed_size(network: Path, monkeypatch) -> None:
    assert open_session(network, device(batch=4)).get_inputs()[0].shape[0] == "batch"
    compiling = replace(PROVIDERS["cpu"], fixed_batch=True)
    monkeypatch.setitem(PROVIDERS, "cpu", compiling)
    assert open_session(network, device(batch=4)).get_inputs()[0].shape[0] == 4


# -- what it runs ------------------------------------------------------------------------------------------------------


def test_nodes_that_compute_shapes_are_told_from_the_work(shapes_model: Path) -> None:
    assert shape_nodes(shapes_model) == {"shape": True, "first": True, "wanted": True, "flat": False, "exp": False}


@pytest.mark.skipif(AZURE not in onnxruntime.get_available_providers(), reason="this build has no second provider")
@pytest.mark.skipif(not placement_is_told(), reason="this runtime cannot be asked")
@pytest.mark.parametrize(("cpu_nodes", "left"), [("shapes", ["flat", "exp"]), ("none", None)])
def test_shapes_may_stay_on_the_cpu_unless_the_device_says_no(
    shapes_model: Path, cpu_nodes: str, left: list[str] | None
) -> None:
    with pytest.raises(DeployNASError) as refused:
        open_session(shapes_model, device(AZURE, cpu_nodes=cpu_nodes))
    if left is None:  # the runtime itself refuses, without names
        assert "fallback to CPU EP has been explicitly disabled" in refused.value.message
    else:
        assert "hands 2 node(s) back to the CPU" in refused.value.message
        assert all(f"`{name}`" in refused.value.message for name in left)


def test_a_plug_in_that_is_not_installed_is_named() -> None:
    with pytest.raises(InputError, match="`no_such_plugin` is not installed"):
        provider_session.plugin_library("no_such_plugin")


def test_a_provider_whose_libraries_are_missing_names_the_first(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").write_bytes(b"no library")
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(InputError, match="`CUDAExecutionProvider` needs libraries that cannot be loaded") as refused:
        provider_session._require_library(PROVIDERS["cuda"])
    assert "onnxruntime-gpu[cuda,cudnn]" in (refused.value.hint or "")


# -- what it computes --------------------------------------------------------------------------------------------------


def test_the_difference_is_relative_to_what_was_expected() -> None:
    expected = np.array([3.0, 4.0])
    assert difference(expected, expected) == 0
    assert difference(expected + np.array([0.3, -0.4]), expected) == pytest.approx(0.1)  # |(0.3, 0.4)| over |(3, 4)|
    assert difference(np.zeros(3), expected) == float("inf")
    assert np.isnan(difference(np.array([np.nan, 4.0]), expected))
    assert difference(np.ones(2), np.zeros(2)) == float("inf")


def test_another_function_is_refused_and_rounding_is_not(network: Path, tiny: Space) -> None:
    session = Session(network, device())
    session.require_agreement(network)
    found, fed = session.outputs(), session.fed
    with pytest.raises(DeployNASError, match="computes something else than the CPU: output `logits`"):
        require_agreement({"logits": found["logits"] * (1 + 2 * TOLERANCE["fp32"])}, fed, network, device())
    require_agreement({"logits": found["logits"] * (1 + 0.5 * TOLERANCE["fp32"])}, fed, network, device())
    with pytest.raises(DeployNASError):
        require_agreement({"logits": np.full_like(found["logits"], np.nan)}, fed, network, device())


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_precision_of_a_file_is_read_from_the_file(precision: str, tiny: Space, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(graph.network(tiny, tiny.smallest(), precision=precision), path)
    assert precision_of(path) == precision


def test_bf16_has_to_show_in_a_whole_network_and_in_no_more_than_rounding(network: Path) -> None:
    half = device(precision="bf16")
    session = Session(network, device())
    found, fed = session.outputs(), session.fed

    def off_by(share: float) -> dict[str, np.ndarray]:
        return {"logits": found["logits"] * (1 + share)}

    for share in (0.0, 0.9 * TOLERANCE["fp32"]):
        require_agreement(off_by(share), fed, network, half)  # a part may have nothing that is computed in bf16
        with pytest.raises(DeployNASError, match="told to compute in bf16 and computes in fp32 here"):
            require_agreement(off_by(share), fed, network, half, whole=True)
    for share in (1.1 * TOLERANCE["fp32"], 0.9 * TOLERANCE["bf16"]):
        require_agreement(off_by(share), fed, network, half, whole=True)
    with pytest.raises(DeployNASError, match="rounding in bf16"):
        require_agreement(off_by(1.1 * TOLERANCE["bf16"]), fed, network, half)


@pytest.mark.skipif("bf16" in instruction_sets(), reason="the CPU provider has bf16 on this processor")
def test_a_processor_without_the_instructions_is_refused_before_anything_is_measured() -> None:
    facts = facts_here()
    require_hardware(device(), facts.hardware)
    with pytest.raises(InputError, match="`cpu` computes in bf16 where Linux lists `bf16`"):
        require_hardware(device(precision="bf16"), facts.hardware)
    arm = facts.hardware.model_copy(update={"instruction_sets": ["asimd", "bf16"]})
    require_hardware(device(precision="bf16"), arm)


def test_eight_bits_are_compared_with_their_emulation_in_float(tiny: Space, tmp_path: Path) -> None:
    """Of all integers in a graph: with optimisation the CPU's own kernels may saturate."""
    path = tmp_path / "model.onnx"
    onnx.save(graph.network(tiny, tiny.smallest(), precision="int8"), path)
    fed = {"input": np.zeros((1, tiny.in_channels, tiny.height, tiny.width), np.float32)}
    assert set(cpu_outputs(path, fed, emulated=True)) == {"logits"}


# -- the first thing typed on a new board ------------------------------------------------------------------------------


def test_a_check_asks_every_precision_and_counts_threads() -> None:
    found = {one.name: one for one in check_device(device(precision="fp16"))}
    assert list(found) == ["machine and provider", "clocks", "fp32", "fp16", "bf16", "int8", "threads"]
    assert found["bf16"].outcome == "ok" and "bf16" in found["bf16"].found  # not run, or ARM's
    assert found["fp32"].outcome == found["fp16"].outcome == "ok"


def test_a_check_ends_where_nothing_can_work() -> None:
    (only,) = check_device(device("cann"))
    assert (
        only.outcome == "failed" and "CANNExecutionProvider" in only.found and "onnxruntime-cann" in (only.hint or "")
    )


@pytest.mark.skipif(AZURE not in onnxruntime.get_available_providers(), reason="this build has no second provider")
def test_a_provider_that_runs_nothing_fails_the_check() -> None:
    found = {one.name: one for one in check_device(device(AZURE))}
    assert found["fp32"].outcome == "failed" and "back to the CPU" in found["fp32"].found
    assert found["int8"].outcome == "warning"  # it is not the device's precision


# -- a worker that others talk into ------------------------------------------------------------------------------------


def test_what_a_library_prints_is_no_answer(tmp_path: Path) -> None:
    """Answers go where stdout led when the worker began; whatever a library writes there later goes to stderr."""
    code = (
        "import os, deploynas.latency.worker as worker\n"
        "worker._keep_stdout_for_answers()\n"
        "os.write(1, b'hello from a library\\n'); print('and from Python', flush=True)\n"
        "worker._say({'facts': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == '{"facts": 1}\n'
    assert "hello from a library" in done.stderr and "and from Python" in done.stderr


def test_an_unexpected_error_of_a_worker_is_a_sentence(tmp_path: Path) -> None:
    code = (
        "import deploynas.latency.worker as worker\n"
        "def fail(request): raise RuntimeError('the runtime says\\nmuch more')\n"
        "worker.serve = fail\n"
        "worker.main()\n"
    )
    request = '{"kind": "facts"}\n'
    done = subprocess.run([sys.executable, "-c", code], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the measuring process failed: RuntimeError: the runtime says" in done.stdout
