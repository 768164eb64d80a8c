"""The header of a model card and the bill of materials, from names that nobody would choose; read by whose they are."""

from __future__ import annotations

import json

import pytest
import yaml
from huggingface_hub import ModelCard
from keys import BROUGHT
from timings import timing

from deploynas.errors import InputError
from deploynas.provenance import Origin
from deploynas.report.bill_of_materials import bill_of_materials
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.publication import Publication

SHA = "ab" * 32
UGLY = [
    "a: b # c",
    "'\"",
    "---",
    "--- \n---\n",
    "<script>&amp;",
    "größe 猫 🐈",
    "{x}",
    "[y]",
    "*z",
    "!!python/x",
    "no",
    "1.0",
    "\x07",
]
HASHES = {"model.onnx": SHA, "model.int8.onnx": "cd" * 32}


def refused_by_the_schema(document: dict) -> object:
    schema = pytest.importorskip("cyclonedx.schema", reason=BROUGHT).SchemaVersion.V1_6
    validation = pytest.importorskip("cyclonedx.validation.json", reason=BROUGHT)
    return validation.JsonStrictValidator(schema).validate_str(json.dumps(document))


@pytest.mark.parametrize("name", UGLY)
def test_any_name_survives_the_header(report: ReportFile, name: str) -> None:
    hardware = report.hardware.model_copy(update={"processor": name})
    data = report.data.model_copy(update={"name": f"x{name}", "classes": UGLY})
    files = [file.model_copy(update={"timing": timing(0.8, 0.9)}) for file in report.files]
    changed = report.model_copy(update={"title": name, "hardware": hardware, "data": data, "files": files})
    read = ModelCard(card(changed, Publication.of("LicenseRef-Ours", "a/b"))).data
    assert read.model_name == name and read.base_model == "a/b" and read.library_name == "onnx"
    assert (read.license, read.license_name) == ("other", "LicenseRef-Ours")
    accuracies = [result.metric_value for result in read.eval_results if result.metric_type == "accuracy"]
    assert accuracies == [0.83, 0.82] and len(read.eval_results) == 6
    assert {result.dataset_name for result in read.eval_results} == {data.public().name}


@pytest.mark.parametrize("name", UGLY)
def test_any_name_survives_the_bill_of_materials(report: ReportFile, name: str) -> None:
    data = report.data.model_copy(update={"name": name, "classes": UGLY})
    lineage = {"supernet": Origin(path=f"{name}.safetensors", sha256=SHA), "table": None}
    changed = report.model_copy(update={"title": name, "data": data, "lineage": lineage, "warnings": [name]})
    document = bill_of_materials(changed, Publication(), HASHES)
    assert refused_by_the_schema(document) is None
    model = document["metadata"]["component"]
    assert model["name"] == name and model["pedigree"]["ancestors"][0]["name"] == f"{name}.safetensors"
    labels = document["components"][0]["data"][0]["contents"]["properties"]
    assert [one["value"] for one in labels if "class:" in one["name"]] == UGLY


def test_the_schema_is_not_a_formality(report: ReportFile) -> None:
    document = bill_of_materials(report, Publication(), HASHES)
    assert refused_by_the_schema({**document, "serialNumber": "one"}) is not None
    assert refused_by_the_schema({**document, "schema": "deploynas/bill"}) is not None


def test_equal_bundles_have_equal_bills_and_others_another_number(report: ReportFile) -> None:
    said = Publication.of("apache-2.0", None)
    first, again = (bill_of_materials(report, said, HASHES) for _ in range(2))
    assert first == again
    others = (
        bill_of_materials(report, said, {**HASHES, "model.onnx": "ef" * 32}),
        bill_of_materials(report, Publication(), HASHES),
        bill_of_materials(report.model_copy(update={"warnings": []}), said, HASHES),
    )
    assert len({document["serialNumber"] for document in (first, *others)}) == 4


def test_an_untrained_network_has_latencies_and_no_accuracy(report: ReportFile) -> None:
    files = [file.model_copy(update={"accuracy": None, "timing": timing(0.8, 0.9)}) for file in report.files]
    untrained = report.model_copy(update={"untrained": True, "files": files})
    document = bill_of_materials(untrained, Publication(), HASHES)
    assert refused_by_the_schema(document) is None
    model_card = document["metadata"]["component"]["modelCard"]
    metrics = model_card["quantitativeAnalysis"]["performanceMetrics"]
    assert len(metrics) == 4 and not any("accuracy" in one["type"] for one in metrics)
    assert "untrained" in model_card["considerations"]["technicalLimitations"][0]
    assert document["components"] == []  # no data
    assert "approach" not in model_card["modelParameters"]
    header = yaml.safe_load(card(untrained).split("---\n")[1])
    assert not {"model-index", "license", "base_model", "datasets"} & set(header)


@pytest.mark.parametrize(
    ("said", "spdx", "hub"),
    [
        ("apache-2.0", "Apache-2.0", {"license": "apache-2.0"}),
        ("MIT", "MIT", {"license": "mit"}),
        ("gpl-3.0-or-later", "GPL-3.0-or-later", {"license": "gpl-3.0"}),
        ("ODC-By-1.0", "ODC-By-1.0", {"license": "odc-by"}),
        (
            "0BSD",
            "0BSD",
            {"license": "other", "license_name": "0BSD", "license_link": "https://spdx.org/licenses/0BSD.html"},
        ),
        ("mit or apache-2.0", "MIT OR Apache-2.0", {"license": "other", "license_name": "MIT OR Apache-2.0"}),
        ("LicenseRef-Ours", "LicenseRef-Ours", {"license": "other", "license_name": "LicenseRef-Ours"}),
        (None, None, {}),
    ],
)
def test_a_licence_is_spdx_and_on_the_hub_one_of_its_list(said: str | None, spdx: str | None, hub: dict) -> None:
    publication = Publication.of(said, None)
    assert publication.license == spdx and publication.hub_license() == hub


@pytest.mark.parametrize("wrong", ["", "my own", "Apache 2", "MIT\nlicense: x", "proprietary"])
def test_what_is_no_licence_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="no SPDX licence"):
        Publication.of(wrong, None)


@pytest.mark.parametrize("wrong", ["", "a/b/c", "a b", "../x", "a--b", "-a", "x" * 97, "https://hub/a/b", "a/b\n"])
def test_what_is_no_name_of_a_model_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="no name of a model"):
        Publication.of(None, wrong)
