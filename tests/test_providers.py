"""Records of execution providers: what the rest may rely on."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.providers import CPU, PROVIDERS, Precision, Provider, provider_of

EVERY = pytest.mark.parametrize("name", sorted(PROVIDERS))


@EVERY
def test_a_record_is_found_by_both_names(name: str) -> None:
    record = PROVIDERS[name]
    assert provider_of(name) is record and provider_of(record.name).name == record.name
    assert record.name.endswith("ExecutionProvider")


@EVERY
def test_options_are_of_precisions_that_it_can_run(name: str) -> None:
    record = PROVIDERS[name]
    able = {precision for precision in get_args(Precision) if record.why_not(precision) is None}
    told = (record.options, record.environment, record.session_options, record.instructions)
    assert set().union(*told) <= able
    assert all(reason and not reason.endswith(".") for reason in record.refused.values())


@EVERY
def test_bf16_is_for_a_provider_that_is_told_to_compute_in_it(name: str) -> None:
    """It computes the graph of fp32, so nothing but an option makes the difference."""
    record = PROVIDERS[name]
    own = record.own_threads(1, "bf16") if record.own_threads else {}
    told = str([record.options.get("bf16"), record.session_options.get("bf16"), own])
    assert record.has_bf16 == (record.why_not("bf16") is None) == ("bf16" in told or "bfloat16" in told)
    assert not record.has_bf16 or record.why_not("fp32") is None


def test_bf16_is_opened_beside_fp32_and_beside_nothing_else() -> None:
    for provider in ("cpu", "openvino", "tensorrt", "migraphx"):
        plain = Device(name="a", provider=provider)
        half = Device(name="a", provider=provider, precision="bf16")
        assert plain.why_not_beside("bf16") is None and half.why_not_beside("fp32") is None
        assert plain.opened_for("bf16") == half and half.opened_for("fp32") == plain
        assert plain.opened_for("int8") == plain and half.opened_for("bf16") == half
        for other in ("fp16", "int8"):
            assert "started differently" in (half.why_not_beside(other) or "")
            odd = Device(name="a", provider=provider, precision=other)
            assert "started differently" in (odd.why_not_beside("bf16") or "") and odd.opened_for("bf16") == odd
    assert "no option of it is known" in (Device(name="a", provider="cuda").why_not_beside("bf16") or "")
    assert "no option of it is known" in (
        Device(name="a", provider="FooExecutionProvider").why_not_beside("bf16") or ""
    )


@EVERY
def test_a_plug_in_stands_beside_the_runtime(name: str) -> None:
    record = PROVIDERS[name]
    assert not record.plugin or record.beside_runtime


def test_of_an_unknown_provider_nothing_is_assumed() -> None:
    assert provider_of("FooExecutionProvider") == Provider("FooExecutionProvider")
    assert provider_of("FooExecutionProvider").install() is None


def test_booleans_are_spelled_as_the_provider_reads_them() -> None:
    assert PROVIDERS["openvino"].spelled(True) == "True" and PROVIDERS["tensorrt"].spelled(True) == "1"
    assert PROVIDERS["cuda"].spelled(7) == "7" and PROVIDERS["cuda"].spelled("kSameAsRequested") == "kSameAsRequested"


def test_what_replaces_the_runtime_is_installed_in_its_place() -> None:
    told = PROVIDERS["cuda"].install("/venv/bin/pip") or ""
    assert told.startswith("`/venv/bin/pip uninstall onnxruntime`") and "onnxruntime-gpu[cuda,cudnn]" in told
    assert "uninstall" not in (PROVIDERS["qnn"].install() or "")


@pytest.mark.parametrize(
    ("provider", "precision"),
    [(name, p) for name, one in PROVIDERS.items() if not one.gone for p in get_args(Precision) if one.why_not(p)],
)
def test_a_precision_that_it_cannot_run_is_refused_by_name(provider: str, precision: str, tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(f"name: board\nprovider: {provider}\nprecision: {precision}\n")
    with pytest.raises(InputError, match=rf"`{provider}` cannot run `precision: {precision}`") as refused:
        Device.load(path)
    assert "it can run" in (refused.value.hint or "")


def test_a_provider_that_the_runtime_has_no_more_says_what_took_its_place(tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text("name: old\nprovider: rocm\n")
    with pytest.raises(InputError, match="migraphx"):
        Device.load(path)


def test_disturbances_are_taken_out_where_other_programs_share_the_processor() -> None:
    assert Device(name="a", provider="cpu").undisturbed and Device(name="a", provider="openvino").undisturbed
    assert not Device(name="a", provider="cuda").undisturbed
    assert Device(name="a", provider="cuda", undisturbed=True).undisturbed


def test_where_a_cache_lies_names_no_other_device() -> None:
    options = {"trt_engine_cache_enable": True}
    here = Device(name="a", provider="tensorrt", provider_options={**options, "trt_engine_cache_path": "here"})
    there = Device(name="a", provider="tensorrt", provider_options={**options, "trt_engine_cache_path": "there"})
    assert here.hash == there.hash != Device(name="a", provider="tensorrt").hash


def test_cores_and_quantisation_name_another_device() -> None:
    plain = Device(name="a", provider="cpu")
    assert plain.hash != Device(name="a", provider="cpu", cores=[1]).hash
    changed = Device.model_validate({"name": "a", "provider": "cpu", "quantization": {"bias": "float"}})
    assert plain.hash != changed.hash and changed.quantized.bias == "float"
    assert plain.quantized == PROVIDERS["cpu"].quantization
    assert Device.from_record(changed.describe()) == changed


@pytest.mark.parametrize("cores", [[], [0, 0], [-1], ["0"], 3, [True]])
def test_cores_are_numbers_each_once(cores: object, tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(f"name: a\nprovider: {'cpu'}\ncores: {cores}\n")
    with pytest.raises(InputError, match="cores"):
        Device.load(path)


def test_the_cpu_is_what_others_are_compared_with() -> None:
    assert PROVIDERS["cpu"].name == CPU and not PROVIDERS["cpu"].refused
