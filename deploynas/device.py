"""Devices: what to measure on and how, written by hand in `devices/*.yaml`."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deploynas.errors import InputError
from deploynas.files import content_hash, known_only, read_yaml
from deploynas.outcome import BudgetKind
from deploynas.providers import PROVIDERS, Precision, Provider, Value, provider_of
from deploynas.quantization import Quantization

MOST_NAMES = 30  # of devices, that an error lists


def _known_statistic(text: str) -> str:
    percentile = text[1:] if text[:1] == "p" else ""
    if text not in ("mean", "median", "min") and not (
        percentile.isascii() and percentile.isdigit() and 0 < int(percentile) < 100
    ):
        raise ValueError("be `mean`, `median`, `min` or a percentile such as `p20`")
    return text


def _known_provider(text: str) -> str:
    if text not in PROVIDERS and not text.endswith("ExecutionProvider"):
        raise ValueError(f"be one of {', '.join(PROVIDERS)}, or the runtime's own name (`…ExecutionProvider`)")
    if provider_of(text).gone:
        raise ValueError(f"be another: {provider_of(text).gone}")
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


def _core_numbers(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    numbers = value if isinstance(value, list | tuple) else ()
    valid = all(type(core) is int and 0 <= core < 4096 for core in numbers)
    if numbers and valid and len(set(numbers)) == len(numbers):
        return tuple(numbers)
    raise ValueError("be a list of processor numbers, each once, such as [0, 1]")


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
    warmup_s: float | None = Field(default=None, ge=0, le=600)  # before anything is timed; None: as the provider needs

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
    plugin: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*$")  # a module with a provider's library
    provider_options: dict[str, Value] = {}
    session_options: dict[str, Value] = {}  # the runtime's own, as `session.intra_op.allow_spinning`
    cpu_nodes: Literal["none", "shapes"] = "shapes"  # what a provider may leave to the CPU: nothing, or shapes
    threads: Annotated[int | str, BeforeValidator(_thread_count)] = 1  # a number, or `all`
    cores: Annotated[tuple[int, ...] | None, BeforeValidator(_core_numbers)] = None  # the ones to stay on
    batch: int = Field(default=1, ge=1, le=65_536)
    precision: Precision = "fp32"
    quantization: Quantization | None = None  # of 8-bit graphs; None: as the provider wants them
    statistic: Annotated[str, AfterValidator(_known_statistic)] = "median"
    # whether what other programs slow down is taken out of the latency; if not given, where they share the processor
    undisturbed: bool = True
    effort: Effort = Effort()
    budget: BudgetKind = "undisturbed"  # which latency a budget is about: that, or a percentile as it was
    budgets: Budgets = Budgets()
    hardware: ExpectedHardware = ExpectedHardware()

    @model_validator(mode="before")
    @classmethod
    def _as_the_provider_is_used(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("provider"), str) and data.get("undisturbed") is None:
            return {**data, "undisturbed": provider_of(data["provider"]).shares_cpu}
        return data

    @classmethod
    def load(cls, source: str | Path) -> Device:
        """A device of a `devices/` folder by name, or a YAML file by path."""
        path = Path(source)
        if path.suffix not in (".yaml", ".yml") and not path.is_file():
            path = _file_of(str(source))
        device = read_yaml(path, cls)
        device.require_precision()
        return device

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Device:
        """From what a generated file says of it; keys that a newer deploynas added are left out."""
        return cls.model_validate(known_only(cls, record))

    @property
    def record(self) -> Provider:
        """What we know about the provider."""
        known = provider_of(self.provider)
        return known if self.plugin is None else replace(known, plugin=self.plugin)

    @property
    def provider_name(self) -> str:
        """The runtime's name of the provider."""
        return self.record.name

    @property
    def quantized(self) -> Quantization:
        """How 8-bit graphs are written for it."""
        return self.quantization or self.record.quantization

    def provider_defaults(self, threads_of_all: int) -> dict[str, Value]:
        """What the provider is told besides what this file says, for its threads and precision to be these."""
        record = self.record
        threads = self.threads if isinstance(self.threads, int) else threads_of_all
        own = record.own_threads(threads, self.precision) if record.own_threads else {}
        return {**record.options.get(self.precision, {}), **own}

    def require_precision(self) -> None:
        """Refuse a precision that the provider cannot compute in."""
        reason = self.record.why_not(self.precision)
        if reason:
            able = [name for name in get_args(Precision) if not self.record.why_not(name)]
            raise InputError(
                f"device `{self.name}`: `{self.provider}` cannot run `precision: {self.precision}`: {reason}",
                hint=f"it can run {' and '.join(able)}",
            )

    def why_not_beside(self, precision: Precision) -> str | None:
        """Why a file in this precision cannot be run and timed beside those of the device; None if it can."""
        record = self.record
        reason = record.why_not(precision)
        if reason:
            return f"`{self.provider}` cannot run it: {reason}"
        differs = record.environment.get(precision, {}) != record.environment.get(self.precision, {})
        if self.opened_for(precision).precision != precision:  # its file has to do with the options of the device
            bf16 = "bf16" in (precision, self.precision) and precision != self.precision
            differs |= bf16 or record.options.get(precision, {}) != record.options.get(self.precision, {})
        if differs:
            return f"`{self.provider}` is started differently for it: use a device with `precision: {precision}`"
        return None

    def opened_for(self, precision: str) -> Device:
        """The device that a file in this precision is opened on, beside one in the device's own.

        fp32 and bf16 are one file, and what the provider is told makes the difference; other files say it themselves.
        """
        if {self.precision, precision} == {"fp32", "bf16"}:
            return self.model_copy(update={"precision": precision})
        return self

    def describe(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)

    @property
    def hash(self) -> str:
        """Names what a latency depends on: two devices that differ only in words or budgets have one hash."""
        what = self.model_dump(include={"provider_options", "threads", "batch", "precision", "statistic"})
        for option in self.record.cache_options:
            what["provider_options"].pop(option, None)
        may_change = {"session_options", "undisturbed", "cores", "plugin", "quantization"}
        unusual = self.model_dump(include=may_change, exclude_defaults=True)
        return content_hash({**what, **unusual, "provider": self.provider_name})


# a device as a field of a generated file
RecordedDevice = Annotated[
    Device, BeforeValidator(lambda found: known_only(Device, found) if isinstance(found, dict) else found)
]


def _file_of(name: str) -> Path:
    """The file of a device that is called by its name, without a look at all the others of a large folder."""
    if name and Path(name).name == name:
        for folder in _folders():
            if (folder / f"{name}.yaml").exists():
                return folder / f"{name}.yaml"
    names = list(device_files())
    near = names if len(names) <= MOST_NAMES else get_close_matches(name, names, n=MOST_NAMES, cutoff=0.0)
    listed = ", ".join(near) or "none found"
    if len(names) > len(near):
        listed += f" and {len(names) - len(near)} more (`deploynas devices` lists them)"
    raise InputError(f"no device `{name}`", hint=f"one of {listed}, or the path of a YAML file")


def device_files() -> dict[str, Path]:
    """Device files by name: those of `devices/` in the working folder, then those that ship with deploynas.

    A project's own device hides a shipped one of the same name, and no other.
    """
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def _folders() -> tuple[Path, ...]:
    """Where devices lie, the first first."""
    return Path("devices"), _shipped_folder()


def shipped() -> list[Path]:
    """The device files that ship with deploynas."""
    return sorted(_shipped_folder().glob("*.yaml"))


def _shipped_folder() -> Path:
    """Of the clone or of the installation."""
    clone = Path(__file__).parent.parent / "devices"
    return clone if clone.is_dir() else Path(__file__).parent / "devices"
