"""Files that version 1 wrote are read for ever, by the functions that the commands read them with.

`golden/v1/` holds one real file of every schema and variant, made with the commands themselves. `facts.json` beside
them holds what the code that wrote them said about them: floats as `float.hex`, architectures as choices.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import deploynas as dn
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.insights import InsightsFile, insights_file, insights_of
from deploynas.errors import InputError
from deploynas.export.bundle import check_manifest
from deploynas.files import parse_json, read_json
from deploynas.latency.comparison import Comparison, compare
from deploynas.quantization import FOR_CPUS
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import markdown
from deploynas.search.result_file import SearchFile
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.extraction import timm_model
from deploynas.supernet.trained_quantization import TrainedQuantization
from deploynas.training.recipe import Recipe
from deploynas.training.state import parse_state, read_state

GOLDEN = Path(__file__).parent / "golden" / "v1"
FACTS = json.loads((GOLDEN / "facts.json").read_text())
NEW_KEY = "a_key_of_the_future"


def read_architecture(path: Path) -> dn.Architecture:
    """As whoever gets a bundle reads `architecture.json`: no command does."""
    data = read_json(path, "deploynas/architecture", 1)
    space = dn.Space.from_description(data["space"])
    space.require_hash(data["space_hash"], str(path))
    assert dn.Architecture.parse(data["architecture"], space).choices == space.architecture(data["choices"]).choices
    return space.architecture(data["choices"])


Reader = Callable[[Path], Any]
READERS: dict[str, Reader] = {
    "latency-table": dn.LatencyTable.load,
    "estimator": load_estimator,
    "checkpoint": load_checkpoint,
    "trained-quantization": lambda path: TrainedQuantization.beside(
        path.with_name(path.name.replace(".int8.json", ".safetensors"))
    ),
    "search-result": SearchFile.load,
    "bench": lambda path: compare(path, path),
    "comparison": lambda path: parse_json(path, Comparison),
    "insights": lambda path: parse_json(path, InsightsFile),
    "report": ReportFile.load,
    "manifest": lambda path: check_manifest(path.parent),
    "architecture": read_architecture,
    "training-state": lambda path: read_state(path.parent),
}


def schema_of(path: Path) -> str:
    return json.loads(path.read_text())["schema"].removeprefix("deploynas/")


GENERATED = sorted(path for path in GOLDEN.rglob("*.json") if path.name != "facts.json")
NAMES = [path.relative_to(GOLDEN).as_posix() for path in GENERATED]
# a key there is one more entry of a mapping, not one more field of a record
MAPPINGS = ("ranges", "lineage", "versions", "validation.ablations", "estimator_validation.ablations")  # not records


def places(data: Any, place: str = "") -> Iterator[tuple[str, dict]]:
    """Every record of a document, with where it is; items of a list are in one place (`stages[]`)."""
    if isinstance(data, dict):
        yield place, data
        for key, value in data.items():
            yield from places(value, f"{place}.{key}".lstrip("."))
    elif isinstance(data, list):
        for item in data:
            yield from places(item, f"{place}[]")


def record_places() -> list:
    """(file, place) of every record in every generated file."""
    cases = []
    for name, path in zip(NAMES, GENERATED, strict=True):
        for place in dict.fromkeys(found for found, _ in places(json.loads(path.read_text()))):
            if place in MAPPINGS:
                continue
            cases.append(pytest.param(name, place, id=f"{name}:{place or 'top'}"))
    return cases


def changed_copy(name: str, folder: Path, change: Callable[[dict], None]) -> Path:
    """The file, changed, in a folder with everything that lay beside it."""
    source = GOLDEN / name
    shutil.copytree(source.parent, folder / "copy")
    path = folder / "copy" / source.name
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def unhex(value: str) -> float:
    return float.fromhex(value)


def images() -> np.ndarray:
    """Two images without a random number in them."""
    return np.sin(np.arange(2 * 28 * 28, dtype=np.float32) / 7).reshape(2, 1, 28, 28)


def logits_of(model: Any, *path: Any) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(torch.from_numpy(images()), *path).numpy()


# -- every generated file --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_read(name: str) -> None:
    READERS[schema_of(GOLDEN / name)](GOLDEN / name)


def test_every_schema_has_a_file() -> None:
    assert {schema_of(path) for path in GENERATED} == set(READERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_newer_version_is_refused(name: str, tmp_path: Path) -> None:
    path = changed_copy(name, tmp_path, lambda data: data.update(schema_version=1000))
    with pytest.raises(InputError, match="newer deploynas") as refusal:
        READERS[schema_of(path)](path)
    assert refusal.value.hint and "upgrade" in refusal.value.hint


@pytest.mark.parametrize(("name", "place"), record_places())
def test_an_unknown_key_is_ignored_wherever_it_is(name: str, place: str, tmp_path: Path) -> None:
    def add_keys(data: dict) -> None:
        for found, record in list(places(data)):
            if found == place:
                record[NEW_KEY] = 1

    path = changed_copy(name, tmp_path, add_keys)
    READERS[schema_of(path)](path)


@pytest.mark.parametrize("path", sorted(path for path in GOLDEN.rglob("*") if path.is_file()), ids=lambda p: p.name)
def test_no_absolute_path_is_inside(path: Path) -> None:
    assert not re.search(rb"[\"' ]/(home|root|tmp|work|Users|var)/", path.read_bytes())


# -- what the files say ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FACTS["tables"]))
def test_a_table_predicts_what_it_did(name: str) -> None:
    table, facts = dn.LatencyTable.load(GOLDEN / name), FACTS["tables"][name]
    assert table.space.hash == FACTS["space_hash"]
    assert table.device_name == facts["device"]
    assert table.mean_error == unhex(facts["mean_error"])
    for choices, expected in zip(FACTS["choices"], facts["predictions_ms"], strict=True):
        assert table.predict(table.space.architecture(choices)) == unhex(expected)


def test_a_table_of_several_input_sizes_predicts_what_it_did() -> None:
    table, facts = dn.LatencyTable.load(GOLDEN / "latency-table.sizes.json"), FACTS["sizes"]
    assert table.space.hash == facts["space_hash"]
    for text, expected in zip(facts["architectures"], facts["predictions_ms"], strict=True):
        assert table.predict(dn.Architecture.parse(text, table.space)).hex() == expected


@pytest.mark.parametrize("name", sorted(FACTS["estimators"]))
def test_an_estimator_predicts_what_it_did(name: str) -> None:
    estimator, facts = load_estimator(GOLDEN / name), FACTS["estimators"][name]
    # sums in network order are exact; a matrix product may add up in another order on another machine
    tolerance = 0.0 if "bilinear" in name else 1e-12
    for choices, accuracy, error in zip(FACTS["choices"], facts["accuracies"], facts["errors"], strict=True):
        architecture = estimator.space.architecture(choices)
        assert estimator.predict(architecture) == pytest.approx(unhex(accuracy), rel=tolerance, abs=0)
        assert estimator.predict_se(architecture) == pytest.approx(unhex(error), rel=1e-12)
    if facts["expected"] is None:
        assert estimator.validation is None
    else:
        assert estimator.validation is not None and estimator.validation.networks == 10
        assert estimator.validation.expected(0.25) == pytest.approx(unhex(facts["expected"]), rel=1e-12)


def test_the_supernet_computes_what_it_did() -> None:
    checkpoint = load_checkpoint(GOLDEN / "checkpoint.supernet.safetensors")
    assert checkpoint.architecture is None and checkpoint.space.hash == FACTS["space_hash"]
    for choices, expected in zip(FACTS["choices"], FACTS["supernet_logits"], strict=True):
        found = logits_of(checkpoint.model, checkpoint.space.architecture(choices))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_network_computes_what_it_did_and_so_does_its_exported_file() -> None:
    import onnxruntime

    checkpoint = load_checkpoint(GOLDEN / "checkpoint.network.safetensors")
    assert checkpoint.architecture == read_architecture(GOLDEN / "bundle" / "architecture.json")
    np.testing.assert_allclose(logits_of(checkpoint.model), FACTS["network_logits"], rtol=0, atol=1e-5)
    session = onnxruntime.InferenceSession(GOLDEN / "bundle" / "model.onnx", providers=["CPUExecutionProvider"])
    rows = [session.run(None, {dn.graph.INPUT: image[None]})[0][0] for image in images()]
    np.testing.assert_allclose(rows, FACTS["network_logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", sorted(FACTS["searches"]))
def test_the_networks_of_a_search_parse_and_print_again(name: str) -> None:
    file, facts = SearchFile.load(GOLDEN / name), FACTS["searches"][name]
    space = file.the_space()
    assert [len(file.networks), len(file.each), len(file.frontier), len(file.tables)] == facts["counts"]
    records = [*file.networks, *(record.own for record in file.each), *file.frontier]
    assert [record.architecture for record in records] == facts["architectures"]
    for record in records:
        parsed = dn.Architecture.parse(record.architecture, space)
        assert parsed == space.architecture(record.choices) and str(parsed) == record.architecture
    table = dn.LatencyTable.load(GOLDEN / "latency-table.profiled.json")
    for point in file.frontier:
        assert table.predict(table.space.architecture(point.choices)) == point.latency_ms


def test_the_accuracy_of_a_search_of_before_is_the_one_to_expect() -> None:
    (written,) = json.loads((GOLDEN / "search-result.one.json").read_text())["networks"]
    (network,) = SearchFile.load(GOLDEN / "search-result.one.json").networks
    assert network.score == written["accuracy"] != written["expected_accuracy"]
    assert network.accuracy == written["expected_accuracy"] and network.accuracy_interval is None


def test_the_recorded_comparison_is_made_again() -> None:
    recorded = parse_json(GOLDEN / "comparison.benches.json", Comparison)
    again = compare(GOLDEN / "bench.base.json", GOLDEN / "bench.new.json", threshold=recorded.threshold)
    assert again.verdict == recorded.verdict and again.same_hardware == recorded.same_hardware
    [row], [expected] = again.rows, recorded.rows
    assert (row.name, row.base_ms, row.new_ms, row.verdict) == (
        *(expected.name, expected.base_ms, expected.new_ms, expected.verdict),
    )
    assert expected.p_value > 0.5 > row.p_value  # recorded of "not slower"; since then of the change's own direction


def test_two_tables_of_different_devices_are_not_compared() -> None:
    with pytest.raises(InputError, match="different device settings"):
        compare(GOLDEN / "latency-table.profiled.json", GOLDEN / "latency-table.batch2.json")


def test_the_recorded_insights_follow_from_the_estimator_and_the_table() -> None:
    recorded = parse_json(GOLDEN / "insights.with-costs.json", InsightsFile)
    estimator = load_estimator(GOLDEN / "estimator.bilinear.json")
    assert isinstance(estimator, dn.BilinearEstimator)
    table = dn.LatencyTable.load(GOLDEN / "latency-table.profiled.json")
    again = insights_file(estimator, insights_of(estimator, table.block_ms), table.device_name)
    assert (again.space, again.device, again.findings) == (recorded.space, recorded.device, recorded.findings)
    for found, expected in zip(again.insights, recorded.insights, strict=True):
        assert (found.aspect, found.change, found.place) == (expected.aspect, expected.change, expected.place)
        assert found.gain == pytest.approx(expected.gain) and found.gain_se == pytest.approx(expected.gain_se)
        assert found.cost_ms == pytest.approx(expected.cost_ms)


def test_the_bundle_is_whole_and_its_report_can_be_shown() -> None:
    bundle = GOLDEN / "bundle"
    manifest, report = check_manifest(bundle), ReportFile.load(bundle)
    assert set(manifest.lineage) == {"table", "estimator", "search", "supernet", "network"}
    assert all(manifest.lineage.values())
    assert {file.path for file in manifest.files} >= {"model.onnx", "model.int8.onnx", "report.json"}
    assert [file.precision for file in report.files] == ["fp32", "int8"]
    assert list(map(tuple, report.choices)) == list(read_architecture(bundle / "architecture.json").choices)
    assert report.predicted_ms is not None
    assert report.prediction_error == report.predicted_ms / report.shipped.latency_ms - 1
    assert report.architecture in html(report) and report.architecture in markdown(report)


def test_the_training_state_holds_a_network_its_average_and_its_optimizer() -> None:
    found = read_state(GOLDEN / "training-state")
    assert found is not None
    file, tensors = parse_state(found[0].model_dump_json(by_alias=True).encode(), found[1])
    assert (file.phase, file.step, file.epoch_totals[2]) == ("finetune", 4, 1000.0)
    network = timm_model(read_architecture(GOLDEN / "bundle" / "architecture.json"))
    for part in ("model/", "average/"):
        network.load_state_dict({name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)})
    numbers = sorted(number for group in file.optimizer_groups for number in group["params"])
    assert numbers == list(range(len(list(network.parameters()))))
    assert {f"optimizer/{number}/momentum_buffer" for number in numbers} <= set(tensors)


def test_what_was_trained_in_8_bits_fits_its_network() -> None:
    checkpoint = load_checkpoint(GOLDEN / "checkpoint.network.safetensors")
    found = TrainedQuantization.beside(GOLDEN / "checkpoint.network.safetensors")
    assert found is not None and checkpoint.architecture is not None
    assert found.why_not(FOR_CPUS) is None
    architecture = checkpoint.architecture
    shapes = dn.graph.weight_shapes(architecture.space, architecture)
    assert {name: value.shape for name, value in found.weights.items()} == shapes
    form = dn.graph.Form(None, "int8", ranges=found.ranges, quantization=found.quantization)
    dn.graph.chain(architecture.space.parts(architecture), found.weights, form)


# -- files written by hand -------------------------------------------------------------------------

HAND_WRITTEN: dict[str, Callable[[Path], Any]] = {
    "space.full.yaml": dn.Space.load,
    "device.full.yaml": dn.Device.load,
    "recipe.full.yaml": Recipe.load,
}


def test_a_space_file_means_what_it_did() -> None:
    space = dn.Space.load(GOLDEN / "space.full.yaml")
    assert space.hash == FACTS["space_hash"] and space.size() == FACTS["space_size"]
    assert [str(space.architecture(choices)) for choices in FACTS["choices"]] == FACTS["architectures"]


def test_a_device_file_means_what_it_did() -> None:
    device = dn.Device.load(GOLDEN / "device.full.yaml")
    assert device.hash == FACTS["device_hash"]
    written = yaml.safe_load((GOLDEN / "device.full.yaml").read_text())
    # renamed since; the older name is still read
    written["effort"]["correction_networks"] = written["effort"].pop("calibration_networks")
    assert_holds(device.describe(), written)


def test_a_recipe_file_means_what_it_did() -> None:
    path = GOLDEN / "recipe.full.yaml"
    found = Recipe.load(path).model_dump(by_alias=True, mode="json")
    assert_holds(found, yaml.safe_load(path.read_text()))


def assert_holds(found: dict, written: dict) -> None:
    """Everything that was written is there; the reader may know more by now."""
    for key, value in written.items():
        if isinstance(value, dict):
            assert_holds(found[key], value)
        else:
            assert found[key] == value, key


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_a_hand_written_file_with_an_unknown_key_or_a_newer_version_is_refused(name: str, tmp_path: Path) -> None:
    text = (GOLDEN / name).read_text()
    for wrong, named in ((f"{text}{NEW_KEY}: 1\n", NEW_KEY), (text.replace("version: 1", "version: 1000"), "version")):
        (tmp_path / name).write_text(wrong)
        with pytest.raises(InputError, match=named):
            HAND_WRITTEN[name](tmp_path / name)
