"""Exporting a fine-tuned network for a device: from what the network remembers to a bundle."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.pipeline.candidates import Candidates
from deploynas.pipeline.delivery import Delivery, Order, deliver
from deploynas.pipeline.exported import Wishes
from deploynas.pipeline.finetune import FineTuneOptions, fine_tuning_task, finetuning_inputs
from deploynas.pipeline.sources import Sources, budget_of
from deploynas.pipeline.supernet import SupernetSource, find_supernet
from deploynas.progress import OnProgress, silent
from deploynas.provenance import NetworkLineage, origin
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import Data, load_data
from deploynas.training.finetune import NETWORK, FinetuneResult, finetune
from deploynas.training.recipe import Augmentation, Recipe
from deploynas.training.untrained import RANDOM, data_or_random, write_untrained


@dataclass(frozen=True)
class ExportOptions:
    wishes: Wishes = field(default_factory=Wishes)
    data: str | Data | None = None  # None: what the network was fine-tuned on
    supernet: Path | None = None  # these three None or empty: what the network remembers
    search: Path | None = None
    tables: tuple[Path, ...] = ()


@dataclass(frozen=True)
class GivenNetwork:
    """A network to export, with its data and with what it came from."""

    path: Path
    space: Space
    data: Data
    recipe: Recipe
    sources: Sources
    untrained: bool = False


def export(
    network: str | Path | FinetuneResult,
    device: str | Device,
    out: str | Path,
    max_latency_ms: float | None = None,
    options: ExportOptions | None = None,
    on_progress: OnProgress = silent,
) -> Delivery:
    """Write a bundle to `out`; `GateError` if no network keeps the budget on the device, and then nothing is left.

    Without a budget, that of the search counts, else that of the device file, else none.
    """
    options = options or ExportOptions()
    device = device if isinstance(device, Device) else Device.load(device)
    opened = open_network(network.path if isinstance(network, FinetuneResult) else network, options)
    return export_for(opened, device, Path(out), max_latency_ms, options.wishes, on_progress)


def untrained_network(search: Path, data: str | None = None, pick: int = 1, out: Path | None = None) -> Path:
    """A network of a search result with random weights, in a folder of its own beside it; random images without any."""
    architecture = SearchFile.load(search).network(pick, search)
    name = f"{search.stem}.untrained" if pick == 1 else f"{search.stem}.untrained-{pick}"
    images = data_or_random(data or RANDOM, architecture.space)
    return write_untrained(architecture, images, out or search.with_name(name), NetworkLineage(search=origin(search)))


def open_network(network: str | Path, options: ExportOptions) -> GivenNetwork:
    """`network` is what `finetune` wrote, or `untrained_network`: its folder or the file in it."""
    place = Path(network)
    path = place / f"{NETWORK}.safetensors" if place.is_dir() else place
    checkpoint = load_checkpoint(path)
    record, space = CheckpointRecord.of(checkpoint), checkpoint.space
    wanted = options.data or record.data_text(path.parent)
    if not wanted:
        raise InputError(f"{path} does not say what it was trained on", hint="give `--data`")
    load = data_or_random if record.untrained else load_data
    data = record.normalised(load(wanted, space) if isinstance(wanted, str) else wanted)
    sources = Sources.remembered(record.lineage, data)
    if options.search:
        sources = sources.with_search(options.search)
    if options.supernet:
        sources = replace(sources, supernet=SupernetSource(find_supernet(options.supernet), data))
    sources = sources.with_tables(options.tables)
    return GivenNetwork(path, space, data, record.recipe_for(space), sources, bool(record.untrained))


def export_for(
    network: GivenNetwork,
    device: Device,
    out: Path,
    max_latency_ms: float | None,
    wishes: Wishes,
    on_progress: OnProgress = silent,
) -> Delivery:
    table = network.sources.table_of(device, network.space)
    budget_ms = budget_of(device, table, max_latency_ms)

    def fine_tune(architecture: Architecture) -> Path:
        return _another(network, architecture, device.name, on_progress)

    candidates = Candidates(device, network.space, network.sources, table, fine_tune, network.path, network.untrained)
    batches = Batches(network.data, network.space, Augmentation())
    return deliver(candidates, Order(budget_ms, batches, wishes), out, on_progress)


def _another(network: GivenNetwork, architecture: Architecture, device_name: str, on_progress: OnProgress) -> Path:
    """A smaller network, fine-tuned as the given one was, beside it."""
    sources = network.sources
    if network.untrained:
        folder = network.path.parent / "again" / device_name / content_hash(architecture.choices)
        return write_untrained(architecture, network.data, folder, NetworkLineage(search=origin(sources.search)))
    assert sources.supernet is not None
    supernet = sources.supernet.open()
    options = FineTuneOptions(network.recipe, sources.teacher, search=sources.search)
    name = content_hash([architecture.choices, finetuning_inputs(supernet, options)])
    folder = network.path.parent / "again" / device_name / name
    return finetune(fine_tuning_task(supernet, architecture, options), folder, on_progress=on_progress).path
