"""What a bundle tells about its sessions is what the measured ones were told, provider by provider."""

from __future__ import annotations

import json
from typing import Any

from deploynas.device import Device
from deploynas.latency.session_record import SessionRecord, as_measured


def device(**about: Any) -> Device:
    return Device.model_validate({"name": "some", **about})


def machine(cores: int, physical_cores: int, cpu_quota: float | None = None) -> dict[str, Any]:
    about = {"machine": "x86_64", "processor": "some", "accelerators": [], "fingerprint": "x", "system": "Linux"}
    counted = {"cores": cores, "physical_cores": physical_cores, "cpu_quota": cpu_quota, "memory_gib": 8}
    return {"hardware": {**about, **counted}}


def test_threads_of_all_are_those_of_the_machine_that_measured() -> None:
    everything = device(provider="cpu", threads="all")
    assert as_measured(everything, machine(16, 8)).intra_op_threads == 8
    assert as_measured(everything, machine(16, 8, 2.5)).intra_op_threads == 2
    assert as_measured(device(provider="cpu", threads=3), machine(16, 8)).intra_op_threads == 3
    pinned = as_measured(device(provider="cpu", threads="all", cores=[4, 5]), machine(16, 8))
    assert (pinned.intra_op_threads, pinned.cores) == (2, [4, 5])


def test_a_device_files_own_options_win_in_the_runtimes_spelling() -> None:
    told = SessionRecord.of(device(provider="cpu", session_options={"session.force_spinning_stop": False}), 1)
    assert told.session_options == {"session.force_spinning_stop": "0"} and told.batch is None


def test_a_provider_with_threads_of_its_own_is_told_them_by_its_options() -> None:
    told = SessionRecord.of(device(provider="openvino", threads=4), 4)
    assert (told.threads, told.intra_op_threads) == (4, 1)
    assert json.loads(told.provider_options["load_config"])["CPU"]["INFERENCE_NUM_THREADS"] == "4"
    plugin = SessionRecord.of(device(provider="openvino-plugin", provider_options={"device_type": "gpu"}), 4)
    assert (plugin.plugin, plugin.device_type) == ("onnxruntime_ep_openvino", "GPU")
    assert "device_type" not in plugin.provider_options


def test_a_provider_that_compiles_for_a_batch_says_which_and_not_where_its_cache_is() -> None:
    options = {"trt_engine_cache_enable": True, "trt_engine_cache_path": "somewhere"}
    told = as_measured(device(provider="tensorrt", batch=8, provider_options=options), machine(4, 4))
    assert told.batch == 8 and told.warmup_s == 3.0 and told.environment == {"NVIDIA_TF32_OVERRIDE": "0"}
    assert told.provider_options == {
        "trt_fp16_enable": "0",
        "trt_int8_enable": "0",
        "trt_engine_cache_enable": "1",
    }
