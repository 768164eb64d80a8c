"""Execution providers of ONNX Runtime: one record each, with everything we must know to use it right.

What a provider is called, which package brings it, how it wants to be spoken to, and what its precisions really are.
`docs/devices.md` says which of this was run, and which was only read in the runtime's source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from deploynas.quantization import FOR_CPUS, Quantization

# bf16 is the graph of fp32, which the provider is told to compute in bf16; the others are graphs of their own
Precision = Literal["fp32", "fp16", "bf16", "int8"]
Value = str | int | float | bool
CPU = "CPUExecutionProvider"

# integer kernels exist, but none for graphs that say where to round by pairs of nodes
_NO_QDQ = "it computes every operator of such a graph in float, between two conversions"
_NO_BF16 = "no option of it is known that computes a graph of fp32 in bf16"


@dataclass(frozen=True)
class Provider:
    """How the runtime and its provider want to be spoken to. Defaults are those of a provider we know nothing about."""

    name: str  # as the runtime calls it
    packages: tuple[str, ...] = ()  # what `pip install` takes
    beside_runtime: bool = True  # whether its package wants `onnxruntime` beside it, or replaces it
    plugin: str | None = None  # the module whose library is registered; the provider is then added by device
    memory: Literal["host", "cuda", "dml"] = "host"  # where inputs and outputs are bound
    accelerator: bool = False  # it computes in memory of its own
    booleans: tuple[str, str] = ("0", "1")  # how its options spell false and true
    # options that say how many threads, for a provider that has threads of its own; None: it takes the session's
    own_threads: Callable[[int, Precision], Mapping[str, Value]] | None = None
    model_prefix_option: str | None = None  # names its cached engines by; without one, models share a cache's names
    cache_options: tuple[str, ...] = ()  # where it keeps what it compiled: no latency depends on them
    fixed_batch: bool = False  # wants shapes that are known when it compiles
    shares_cpu: bool = False  # other programs slow it down, which is taken out of a latency unless the device says no
    warmup_s: float = 0.0  # of inferences before anything is timed, until its clock has settled
    refused: Mapping[Precision, str] = field(default_factory=dict)  # precisions that it cannot run, and why: `why_not`
    has_bf16: bool = False  # an option, here or in `own_threads`, makes it compute in bf16
    # options by precision, for it to compute in that precision and in no other; what a device file says wins
    options: Mapping[Precision, Mapping[str, Value]] = field(default_factory=dict)
    environment: Mapping[Precision, Mapping[str, str]] = field(default_factory=dict)  # before its library is loaded
    session_options: Mapping[Precision, Mapping[str, Value]] = field(default_factory=dict)  # the runtime's own
    # instructions of the processor, as Linux names them: without one of them it computes in fp32, and does not say so
    instructions: Mapping[Precision, tuple[str, ...]] = field(default_factory=dict)
    quantization: Quantization = FOR_CPUS
    only_on: str | None = None  # the hardware that it offers itself on, and what runs elsewhere
    gone: str | None = None  # since when the runtime has it no more, and what took its place
    library: str | None = None  # of the runtime's package, that loads its vendor's; it is tried before it is needed

    def why_not(self, precision: str) -> str | None:
        """Why it cannot run a precision; None if it can."""
        if precision == "bf16" and not self.has_bf16:
            return self.refused.get("bf16", _NO_BF16)
        return {str(one): why for one, why in self.refused.items()}.get(precision)

    def spelled(self, value: Value) -> str:
        """A value of an option, as the provider reads it."""
        return self.booleans[value] if isinstance(value, bool) else str(value)

    def install(self, pip: str = "pip") -> str | None:
        """What to type to get it."""
        if not self.packages:
            return None
        packages = " ".join(f'"{package}"' if "[" in package else package for package in self.packages)
        typed = f"`{pip} install {packages}`"
        return typed if self.beside_runtime else f"`{pip} uninstall onnxruntime`, then {typed}"


def _openvino_config(threads: int, precision: Precision) -> dict[str, Value]:
    """OpenVINO's own words: the plug-in ignores every other way to say this, without a word."""
    cpu: dict[str, str] = {"INFERENCE_NUM_THREADS": str(threads)}
    gpu: dict[str, str] = {}
    if precision == "fp32":  # a GPU computes in fp16 otherwise, a CPU with bf16 in that
        cpu["INFERENCE_PRECISION_HINT"] = gpu["INFERENCE_PRECISION_HINT"] = "f32"
    elif precision == "bf16":  # a GPU refuses it, where without a word it would compute in fp16
        cpu["INFERENCE_PRECISION_HINT"] = gpu["INFERENCE_PRECISION_HINT"] = "bf16"
    return {"load_config": json.dumps({"CPU": cpu, **({"GPU": gpu} if gpu else {})})}


_OPENVINO = Provider(
    "OpenVINOExecutionProvider",
    ("onnxruntime-openvino",),
    beside_runtime=False,
    booleans=("False", "True"),
    own_threads=_openvino_config,
    has_bf16=True,
    cache_options=("cache_dir",),
    shares_cpu=True,
)
_GPU_PACKAGE = ("onnxruntime-gpu[cuda,cudnn]",)

# by the short name that device files use
PROVIDERS: dict[str, Provider] = {
    "cpu": Provider(
        CPU,
        ("onnxruntime",),
        shares_cpu=True,
        has_bf16=True,
        session_options={"bf16": {"mlas.enable_gemm_fastmath_arm64_bfloat16": True}},
        instructions={"bf16": ("bf16",)},  # ARM's; x86 processors that have bf16 call it otherwise, and it is not used
    ),
    "cuda": Provider(
        "CUDAExecutionProvider",
        _GPU_PACKAGE,
        beside_runtime=False,
        memory="cuda",
        accelerator=True,
        warmup_s=3.0,
        library="libonnxruntime_providers_cuda.so",
        refused={"int8": _NO_QDQ},
        # fp32 is TF32 where the GPU has it, unless it is told otherwise; arenas double by default
        options={
            "fp32": {"use_tf32": False, "arena_extend_strategy": "kSameAsRequested"},
            "fp16": {"arena_extend_strategy": "kSameAsRequested"},
        },
    ),
    "tensorrt": Provider(
        "TensorrtExecutionProvider",
        (*_GPU_PACKAGE, "tensorrt"),
        beside_runtime=False,
        memory="cuda",
        accelerator=True,
        warmup_s=3.0,
        library="libonnxruntime_providers_tensorrt.so",
        model_prefix_option="trt_engine_cache_prefix",
        cache_options=("trt_engine_cache_path", "trt_timing_cache_path"),
        fixed_batch=True,
        options={
            "fp32": {"trt_fp16_enable": False, "trt_int8_enable": False},
            "fp16": {"trt_fp16_enable": True},
            "bf16": {"trt_bf16_enable": True, "trt_fp16_enable": False, "trt_int8_enable": False},
            "int8": {"trt_int8_enable": True},
        },
        # it has no option for TF32; what it leaves in fp32 beside bf16 is fp32, so both can be opened in one process
        environment={precision: {"NVIDIA_TF32_OVERRIDE": "0"} for precision in ("fp32", "bf16")},
        has_bf16=True,
        quantization=Quantization(activations="int8", symmetric=True, bias="float", hard_activations="operator"),
    ),
    "tensorrt-rtx": Provider(
        "NvTensorRTRTXExecutionProvider",
        ("onnxruntime-ep-nv-tensorrt-rtx",),
        plugin="onnxruntime_ep_nv_tensorrt_rtx",
        accelerator=True,
        warmup_s=3.0,
        cache_options=("nv_runtime_cache_path",),
        fixed_batch=True,
        environment={"fp32": {"NVIDIA_TF32_OVERRIDE": "0"}},
        quantization=Quantization(activations="int8", symmetric=True, bias="float", hard_activations="operator"),
    ),
    "openvino": _OPENVINO,
    "openvino-plugin": replace(
        _OPENVINO,
        packages=("onnxruntime-ep-openvino",),
        beside_runtime=True,
        plugin="onnxruntime_ep_openvino",
        only_on="it is for Intel's hardware alone; on other processors device `openvino-cpu` runs",
    ),
    "directml": Provider(
        "DmlExecutionProvider",
        ("onnxruntime-directml",),
        beside_runtime=False,
        memory="dml",
        accelerator=True,
        warmup_s=3.0,
        refused={"int8": _NO_QDQ},
    ),
    "migraphx": Provider(
        "MIGraphXExecutionProvider",
        ("onnxruntime-migraphx",),
        beside_runtime=False,
        warmup_s=3.0,
        fixed_batch=True,
        options={
            "fp32": {"migraphx_fp16_enable": False},
            "bf16": {"migraphx_bf16_enable": True, "migraphx_fp16_enable": False},
            "int8": {"migraphx_int8_enable": True},
        },
        has_bf16=True,
    ),
    "rocm": Provider(
        "ROCMExecutionProvider",
        ("onnxruntime-rocm",),
        beside_runtime=False,
        gone="ONNX Runtime 1.23 has it no more; `migraphx` is for the same GPUs",
    ),
    "qnn": Provider(
        "QNNExecutionProvider",
        ("onnxruntime-qnn",),
        plugin="onnxruntime_qnn",
        fixed_batch=True,
        warmup_s=1.0,
        refused={
            "fp32": "its tensor processor computes in fp16 what a file has in fp32; say `precision: fp16`",
            "bf16": "only its newest chips have bf16 (`htp_bf16_enable` with a `soc_model` of 88 or more); never tried",
        },
        options={
            "fp16": {"backend_type": "htp"},
            # the first quantisation is left to the CPU otherwise
            "int8": {"backend_type": "htp", "offload_graph_io_quantization": 0},
        },
        # of a tensor that is read with two scales it takes one, and what is not in 8 bits on both sides runs on the CPU
        quantization=Quantization(hard_activations="operator", logits="8-bit"),
    ),
    "coreml": Provider(
        "CoreMLExecutionProvider",
        ("onnxruntime",),
        fixed_batch=True,
        warmup_s=1.0,
        refused={"int8": "Core ML's provider does not take quantised graphs"},
        options={
            precision: {"ModelFormat": "MLProgram", "RequireStaticInputShapes": True} for precision in ("fp32", "fp16")
        },
        cache_options=("ModelCacheDirectory",),
    ),
    "webgpu": Provider(
        "WebGpuExecutionProvider",
        ("onnxruntime-ep-webgpu",),
        plugin="onnxruntime_ep_webgpu",
        accelerator=True,
        warmup_s=3.0,
        refused={"int8": _NO_QDQ},
    ),
    "cann": Provider(
        "CANNExecutionProvider",
        ("onnxruntime-cann",),
        beside_runtime=False,
        fixed_batch=True,
        warmup_s=1.0,
        options={"fp32": {"precision_mode": "must_keep_origin_dtype"}},
    ),
    "xnnpack": Provider("XnnpackExecutionProvider", shares_cpu=True),
}


def provider_of(name: str) -> Provider:
    """By short name, or by the runtime's own; one we have no record of is taken as it is."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    by_name = {record.name: record for record in reversed(PROVIDERS.values())}
    return by_name.get(name, Provider(name))
