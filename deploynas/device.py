"""Devices: what to measure on and how, written by hand in `devices/*.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deploynas.errors import InputError
from deploynas.files import content_hash, known_only, read_yaml
from deploynas.outcome import BudgetKind

# short name: (the runtime's name, the package that carries it)
PROVIDERS = {
    "cpu": ("CPUExecutionProvider", "onnxruntime"),
    "cuda": ("CUDAExecutionProvider", "onnxruntime-gpu"),
    "tensorrt": ("TensorrtExecutionProvider", "onnxruntime-gpu"),
    "openvino": ("OpenVINOExecutionProvider", "onnxruntime-openvino"),
    "directml": ("DmlExecutionProvider", "onnxruntime-directml"),
    "rocm": ("ROCMExecutionProvider", "onnxruntime-rocm"),
    "migraphx": ("MIGraphXExecutionProvider", "onnxruntime-migraphx"),
    "qnn": ("QNNExecutionProvider", "onnxruntime-qnn"),
    "coreml": ("CoreMLExecutionProvider", "onnxruntime"),
    "xnnpack": ("XnnpackExecutionProvider", "onnxruntime"),
}


def _known_statistic(text: str) -> str:
    percentile = text[1:] if text[:1] == "p" else ""
    if text not in ("mean", "median", "min") and not (percentile.isdigit() and 0 < int(percentile) < 100):
        raise ValueError("be `mean`, `median`, `min` or a percentile such as `p20`")
    return text


def _known_provider(text: str) -> str:
    if text not in PROVIDERS and not text.endswith("ExecutionProvider"):
        raise ValueError(f"be one of {', '.join(PROVIDERS)}, or the runtime's own name (`…ExecutionProvider`)")
    return text


def _ssh_destination(text: str) -> str:
    """One word, and never an option of `ssh`."""
    if not text or len(text) > 255 or text.startswith("-") or not text.isprintable() or any(c.isspace() for c in text):
        raise ValueError("be what `ssh` takes: `board`, `user@board` or a name of `~/.ssh/config`")
    return text


def _thread_count(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096:
        return value
    if value == "all":
        return "all"
    raise ValueError("be a number from 1 to 4096, or `all`")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Effort(_Strict):
    """How much to measure. The planned visits are always made; the time limit ends the repeats after them."""

    workers: int = Field(default=2, ge=1, le=100)  # fresh processes, each of which measures everything
    visits: int = Field(default=6, ge=2, le=1000)  # to each whole network by each worker, in random order
    part_visits: int = Field(default=8, ge=2, le=1000)  # the same for isolated parts, which are short
    warmup_runs: int = Field(default=1, ge=0, le=1000)  # at each visit, not timed, while caches settle
    runs: int = Field(default=4, ge=1, le=10_000)  # timed inferences a visit
    min_visit_ms: float = Field(default=1.0, ge=0, le=60_000)  # entries faster than this / runs get more runs
    correction_networks: int = Field(default=30, ge=0, le=10_000)  # whole networks that the table is corrected by
    validation_networks: int = Field(default=20, ge=2, le=10_000)  # and others that it is tested on
    max_relative_error: float = Field(default=0.03, gt=0, le=1)  # above it an entry is unstable, and repeated
    time_limit_s: float = Field(default=50.0, gt=0, le=86_400)

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, data: object) -> object:
        """`correction_networks` was called `calibration_networks`."""
        if isinstance(data, dict) and "calibration_networks" in data and "correction_networks" not in data:
            return {("correction_networks" if key == "calibration_networks" else key): data[key] for key in data}
        return data


class Budgets(_Strict):
    """Limits that CI gates hold networks to."""

    latency_ms: float | None = Field(default=None, gt=0, le=1e6)
    params: float | None = Field(default=None, gt=0)
    macs: float | None = Field(default=None, gt=0)
    size_bytes: float | None = Field(default=None, gt=0)
    peak_memory_bytes: float | None = Field(default=None, gt=0)


class ExpectedHardware(_Strict):
    """What must be true of the machine before anything is measured on it."""

    machine: str | None = None  # as `uname -m`: x86_64, aarch64, …
    processor_contains: str | None = None
    min_cores: int | None = Field(default=None, ge=1, le=4096)


class Device(_Strict):
    """A device profile. `Device.load("cpu-1t")` or `Device.load("my-device.yaml")`."""

    schema_: Literal["deploynas/device"] = Field(default="deploynas/device", alias="schema")
    schema_version: Literal[1] = 1
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    # another machine, as `ssh` takes it, and the command of its Python; files that are handed on say neither
    host: Annotated[str, AfterValidator(_ssh_destination)] | None = Field(default=None, exclude=True)
    python: str = Field(default="python3", min_length=1, max_length=1000, exclude=True)
    provider: Annotated[str, AfterValidator(_known_provider)]
    provider_options: dict[str, str | int | float | bool] = {}
    session_options: dict[str, str | int | float | bool] = {}  # the runtime's own, as `session.intra_op.allow_spinning`
    threads: Annotated[int | str, BeforeValidator(_thread_count)] = 1  # a number, or `all`
    batch: int = Field(default=1, ge=1, le=65_536)
    precision: Literal["fp32", "int8"] = "fp32"
    statistic: Annotated[str, AfterValidator(_known_statistic)] = "median"
    undisturbed: bool = True  # true: what other work on the machine slows down is taken out of the latency
    effort: Effort = Effort()
    budget: BudgetKind = "undisturbed"  # which latency a budget is about: that, or a percentile as it was
    budgets: Budgets = Budgets()
    hardware: ExpectedHardware = ExpectedHardware()

    @classmethod
    def load(cls, source: str | Path) -> Device:
        """A device of a `devices/` folder by name, or a YAML file by path."""
        path = Path(source)
        if path.suffix in (".yaml", ".yml") or path.is_file():
            return read_yaml(path, cls)
        files = device_files()
        if str(source) not in files:
            known = ", ".join(files) or "none found"
            raise InputError(f"no device `{source}`", hint=f"one of {known}, or the path of a YAML file")
        return read_yaml(files[str(source)], cls)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Device:
        """From what a generated file says of it; keys that a newer deploynas added are left out."""
        return cls.model_validate(known_only(cls, record))

    @property
    def provider_name(self) -> str:
        """The runtime's name of the provider."""
        return PROVIDERS[self.provider][0] if self.provider in PROVIDERS else self.provider

    @property
    def provider_package(self) -> str | None:
        """The package to install for it, where known."""
        return dict(PROVIDERS.values()).get(self.provider_name)

    def describe(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)

    @property
    def hash(self) -> str:
        """Names what a latency depends on: two devices that differ only in words or budgets have one hash."""
        what = self.model_dump(include={"provider_options", "threads", "batch", "precision", "statistic"})
        unusual = self.model_dump(include={"session_options", "undisturbed"}, exclude_defaults=True)
        return content_hash({**what, **unusual, "provider": self.provider_name})


# a device as a field of a generated file
RecordedDevice = Annotated[
    Device, BeforeValidator(lambda found: known_only(Device, found) if isinstance(found, dict) else found)
]


def device_files() -> dict[str, Path]:
    """Device files by name: those of `devices/` in the working folder, then those that ship with deploynas.

    A project's own device hides a shipped one of the same name, and no other.
    """
    found: dict[str, Path] = {}
    for folder in (Path("devices"), _shipped_folder()):
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def shipped() -> list[Path]:
    """The device files that ship with deploynas."""
    return sorted(_shipped_folder().glob("*.yaml"))


def _shipped_folder() -> Path:
    """Of the clone or of the installation."""
    clone = Path(__file__).parent.parent / "devices"
    return clone if clone.is_dir() else Path(__file__).parent / "devices"
