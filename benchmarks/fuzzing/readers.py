"""Everything that is read: with what a command does with it, from which valid files, and how those are mutated."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from deploynas.errors import InputError
from fuzzing import mutations
from fuzzing.valid_files import GOLDEN, ROOT

Read = Callable[[Path, Path, Path], object]  # the file, a folder to write into, the folder of valid files


@dataclass(frozen=True)
class Reader:
    """One format."""

    form: str  # json, yaml, words or bytes
    seeds: tuple[str, ...]  # patterns below the valid files, the golden ones or the clone
    read: Read
    head: int | None = None  # of bytes: how many describe the rest
    trace: bool = True  # whether new lines of ours make a case a seed

    def contents(self, made: Path) -> list[tuple[str, bytes]]:
        """(suffix, content) of every seed."""
        paths = [path for pattern in self.seeds for folder in (made, GOLDEN, ROOT) for path in folder.glob(pattern)]
        found = [("".join(path.suffixes[-1:]), path.read_bytes()) for path in sorted(set(paths))]
        if self.form == "words":
            return [("", text.encode()) for _, content in found for text in json.loads(content)]
        return found

    def mutated(self, content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
        if self.form in ("json", "yaml") and rng.random() < 0.85:
            parse, written = (
                (json.loads, mutations.json_text) if self.form == "json" else (yaml.safe_load, mutations.yaml_text)
            )
            try:
                data, rest = parse(content.decode()), [parse(other.decode()) for other in others[:2]]
                return written(mutations.tree(data, [one for one in rest if isinstance(one, (dict, list))], rng))
            except (ValueError, RecursionError, yaml.YAMLError, OverflowError, TypeError):
                pass  # of a case that grew the corpus and is no longer valid: by its bytes
        if self.form != "bytes" and rng.random() < 0.7:
            texts = [other.decode(errors="replace") for other in others[:2]]
            return mutations.words(content.decode(errors="replace"), texts, rng).encode("utf-8", "surrogatepass")
        return mutations.octets(content, others[:2], rng, self.head)


def device(path: Path, out: Path, made: Path) -> None:
    from deploynas.device import Device

    found = Device.load(path)
    found.describe(), found.hash, found.provider_name, found.quantized, found.provider_defaults(2)
    found.why_not_beside("int8")


def space(path: Path, out: Path, made: Path) -> None:
    from deploynas.costs import resource_table
    from deploynas.space import Space

    _use_space(found := Space.load(path))
    resource_table(found, "macs")


def _use_space(found: Any) -> None:
    from deploynas.space import Architecture, Space

    found.size(), found.hash
    for one in (found.smallest(), found.heaviest()):
        assert Architecture.parse(str(one), found) == one
    assert Space.from_description(found.describe()).hash == found.hash


def recipe(path: Path, out: Path, made: Path) -> None:
    from deploynas.training.recipe import Recipe

    found = Recipe.load(path)
    found.training_settings(), found.finetune_settings()


def setting(path: Path, out: Path, made: Path) -> None:
    from deploynas.training.recipe import Recipe

    Recipe.load("fashion", [path.read_bytes().decode(errors="replace")])


def table(path: Path, out: Path, made: Path) -> None:
    from deploynas.latency.comparison import compare
    from deploynas.latency.table import LatencyTable

    found = LatencyTable.load(path)
    for one in (found.space.smallest(), found.space.heaviest()):
        found.predict(one)
    found.option_ms(), found.mean_ms() if not found.by_size else None, found.cost(), found.forms, found.device_name
    found.save(out / "table.json")
    if found.evidence:
        assert not _changed_and_same(compare(path, path, any_hardware=True))


def bench(path: Path, out: Path, made: Path) -> None:
    from deploynas.latency.comparison import compare

    assert not _changed_and_same(compare(path, path))
    for other in (made / "bench.json", GOLDEN / "bench.base.json"):
        with suppress(InputError):  # of another device
            found = compare(other, path, any_hardware=True)
            assert not _changed_and_same(found), found.markdown()


def _changed_and_same(found: Any) -> bool:
    """What a gate promises not to do: to call the same what is further away than the threshold, or was not compared."""
    far = [row for row in found.rows if not abs(row.change) <= found.threshold and row.verdict == "same"]
    return bool(far) or (found.verdict in ("same", "faster") and bool(found.incomplete))


def estimator(path: Path, out: Path, made: Path) -> None:
    from deploynas.accuracy.estimator_file import load_estimator
    from deploynas.accuracy.insights import insights_file, insights_of
    from deploynas.report.insights_page import page

    found = load_estimator(path)
    for one in (found.space.smallest(), found.space.heaviest()):
        found.predict(one), found.predict_se(one)
        if found.scale == "accuracy":
            found.expect(one)
    found.objective(), found.ranked_by
    found.save(out / "estimator.json")
    with suppress(InputError):  # of a kind that has no contributions
        inert(page(insights_file(found, insights_of(found), "a device")))


def search_result(path: Path, out: Path, made: Path) -> None:
    from deploynas.cli.network_argument import read_network
    from deploynas.search.result_file import SearchFile

    found = SearchFile.load(path)
    found.architectures(), found.budget_ms
    found.network(1, path)
    read_network(f"{path}:1", found.the_space())
    found.save(out / "result.json")


def insights(path: Path, out: Path, made: Path) -> None:
    from deploynas.accuracy.insights import InsightsFile
    from deploynas.files import parse_json
    from deploynas.report.insights_page import page

    inert(page(parse_json(path, InsightsFile)))


def report(path: Path, out: Path, made: Path) -> None:
    from deploynas.report.card import card
    from deploynas.report.document import ReportFile
    from deploynas.report.html import html
    from deploynas.report.index import index
    from deploynas.report.markdown import markdown

    found = ReportFile.load(path)
    inert(html(found))
    inert(index({"one": found, "two": found}))
    (out / "report.md").write_text(markdown(found), encoding="utf-8")
    (out / "README.md").write_text(card(found), encoding="utf-8")
    found.save(out / "report.json")


class _Elements(HTMLParser):
    """What could run in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.hostile: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "iframe", "object", "embed", "base", "form") or any(
            name.startswith("on") for name, _ in attributes
        ):
            self.hostile.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "action") and (value or "").strip().lower().startswith(("javascript:", "http")):
                self.hostile.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "fuzzed()" in data:
            self.hostile.append("script")


def inert(text: str) -> None:
    """Nothing of what a file says becomes a part of the page that acts."""
    parser = _Elements()
    parser.feed(text)
    parser.close()
    assert not parser.hostile, parser.hostile[:3]


def manifest(path: Path, out: Path, made: Path) -> None:
    from deploynas.export.bundle import check_manifest, refresh_manifest

    folder = path.parent / "bundle"
    if not folder.exists():
        shutil.copytree(GOLDEN / "bundle", folder)
    shutil.copy(path, folder / "manifest.json")
    refresh_manifest(folder)
    check_manifest(folder)


def comparison(path: Path, out: Path, made: Path) -> None:
    from deploynas.files import parse_json
    from deploynas.latency.comparison import Comparison

    parse_json(path, Comparison).markdown()


def checkpoint(path: Path, out: Path, made: Path) -> None:
    """The description of weights: each of the valid files' weights beside it."""
    from deploynas.supernet.checkpoint import load_checkpoint
    from deploynas.training.checkpoint_record import CheckpointRecord

    sidecar = path.with_name("weights.json")
    shutil.copy(path, sidecar)
    sha256 = json.loads(path.read_bytes()).get("weights_sha256") if _is_record(path) else None
    weights = _weights_by_sha256(made).get(str(sha256), GOLDEN / "checkpoint.network.safetensors")
    shutil.copy(weights, sidecar.with_suffix(".safetensors"))
    CheckpointRecord.read(sidecar.with_suffix(".safetensors"))
    load_checkpoint(sidecar.with_suffix(".safetensors"))


def _is_record(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (ValueError, RecursionError):
        return False


@cache
def _weights_by_sha256(made: Path) -> dict[str, Path]:
    paths = [*made.glob("*.safetensors"), *GOLDEN.glob("*.safetensors")]
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in paths}


def weights(path: Path, out: Path, made: Path) -> None:
    """Weights that are damaged, or a stranger's, whose description fits them."""
    from deploynas.supernet.checkpoint import load_checkpoint

    sidecar = path.with_name("weights.json")
    described = json.loads((made / "network.json").read_text())
    described["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(described))
    shutil.copy(path, sidecar.with_suffix(".safetensors"))
    load_checkpoint(sidecar.with_suffix(".safetensors"))


def training_state(path: Path, out: Path, made: Path) -> None:
    from deploynas.training.state import read_state

    folder = path.parent / "state"
    if not folder.exists():
        shutil.copytree(GOLDEN / "training-state", folder)
    shutil.copy(path, folder / "state.json")
    read_state(folder)


def results(path: Path, out: Path, made: Path) -> None:
    from deploynas.accuracy.results_table import ResultsTable

    ResultsTable.read(path, _mini(made))


@cache
def _mini(made: Path) -> Any:
    from deploynas.space import Space

    return Space.load(made / "space.yaml")


@cache
def _preset(name: str) -> Any:
    from deploynas.space import Space

    return Space.load(name)


def architecture(path: Path, out: Path, made: Path) -> None:
    from deploynas.cli.network_argument import read_network

    text, refused = path.read_bytes().decode(errors="replace"), None
    for known in (_mini(made), *map(_preset, ("ofa-mbv3", "nasbench201", "fashion-cell"))):
        try:
            found = read_network(text, known)
        except InputError as error:
            refused = error
        else:
            assert read_network(str(found), known) == found
            refused = None
            break
    if refused:
        raise refused


def torch_file(path: Path, out: Path, made: Path) -> None:
    from deploynas.supernet.once_for_all import read_once_for_all

    read_once_for_all(path)


def onnx_file(path: Path, out: Path, made: Path) -> None:
    """Opened and described; a model that is run is a program, and may take as long as it likes."""
    from deploynas.device import Device
    from deploynas.latency.agreement import precision_of
    from deploynas.latency.bench import _read_model
    from deploynas.latency.placement import shape_nodes
    from deploynas.latency.session import Session

    _read_model(path)
    precision_of(path)
    shape_nodes(path)
    Session(path, Device(name="fuzz", provider="cpu"))


def image(path: Path, out: Path, made: Path) -> None:
    """A file that PIL cannot read is skipped by training, and named; what remains is no error."""
    import torch

    from deploynas.training.batches import Batches
    from deploynas.training.data import Data, Subset
    from deploynas.training.recipe import Augmentation
    from deploynas.training.sources import FileImages

    whole = Subset(FileImages((str(made / "image.png"), str(path)), torch.tensor([0, 0])), torch.arange(2))
    data = Data("fuzz", ("one",), whole, whole, None, (0.5,), (0.5,))
    list(Batches(data, _mini(made), Augmentation()).evaluation(whole))


def idx(path: Path, out: Path, made: Path) -> None:
    from deploynas.training.idx import read_idx

    read_idx(path)


READERS: dict[str, Reader] = {
    "device": Reader("yaml", ("devices/*.yaml", "device.full.yaml"), device),
    "space": Reader("yaml", ("space.yaml", "space.full.yaml", "deploynas/space/presets/*.yaml"), space),
    "recipe": Reader("yaml", ("recipe.full.yaml", "deploynas/training/recipes/*.yaml"), recipe),
    "setting": Reader("words", ("settings.json",), setting),
    "table": Reader("json", ("table.json", "latency-table.*.json"), table),
    "bench": Reader("json", ("bench*.json",), bench),
    "comparison": Reader("json", ("comparison.*.json",), comparison),
    "estimator": Reader("json", ("estimator.*.json",), estimator),
    "search-result": Reader("json", ("search-result.*.json",), search_result),
    "insights": Reader("json", ("insights.*.json",), insights),
    "report": Reader("json", ("bundle/report.json", "benchmarks/fuzzing/seeds/report.json"), report),
    "manifest": Reader("json", ("bundle/manifest.json",), manifest),
    "checkpoint": Reader("json", ("network.json", "supernet.json", "checkpoint.*.json"), checkpoint),
    "weights": Reader("bytes", ("network.safetensors",), weights, head=4000),
    "training-state": Reader("json", ("training-state/state.json",), training_state),
    "results": Reader("csv", ("results.csv",), results),
    "architecture": Reader("words", ("architectures.json", "texts.json"), architecture),
    "torch-file": Reader("bytes", ("*.pth",), torch_file, head=3000, trace=False),
    "onnx": Reader("bytes", ("model*.onnx",), onnx_file, head=2000, trace=False),
    "image": Reader("bytes", ("image.*",), image, head=100, trace=False),
    "idx": Reader("bytes", ("images.idx*",), idx, head=40),
}
