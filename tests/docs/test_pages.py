"""What the documentation promises about itself: links lead somewhere, nothing is missing, nothing is private."""

from __future__ import annotations

import importlib
import re
import subprocess
import typing

import pytest
import yaml
from click.testing import CliRunner
from pages import ROOT, anchors, blocks, links, pages
from pydantic import BaseModel

from deploynas.accuracy.estimator_file import estimator_class
from deploynas.accuracy.registry import ESTIMATORS
from deploynas.cli import group
from deploynas.device import Device
from deploynas.space.cell_schema import CellSpaceFile
from deploynas.space.schema import SpaceFile
from deploynas.training.recipe import Recipe

ALL = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "examples/*/*.md")
    for path in ROOT.glob(pattern)
)
every_page = pytest.mark.parametrize("page", ALL)
FORMATS = "docs/file-formats.md"


@every_page
def test_every_link_leads_somewhere(page: str) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.resolve().relative_to(ROOT).as_posix()), f"{page}: {link}"


def test_a_reader_of_the_readme_finds_every_page() -> None:
    assert set(ALL) == set(pages())


@every_page
def test_no_page_names_a_place_on_somebodys_machine(page: str) -> None:
    found = re.findall(r"(?<![\w.])/(?:home|root|Users|tmp|work|mnt|opt)\b\S*", (ROOT / page).read_text())
    assert not found, f"{page}: {found}"


def test_every_command_has_its_page() -> None:
    listed = CliRunner().invoke(group, ["--help"]).output.partition("Commands:")[2]
    commands = re.findall(r"^  (\S+)", listed, flags=re.MULTILINE)
    assert len(commands) >= 12
    table = (ROOT / "README.md").read_text()
    for command in commands:
        row = re.search(rf"^\| `{command}` \|.*\]\((docs/[\w-]+\.md)\) \|$", table, flags=re.MULTILINE)
        assert row, f"the README's table has no row `{command}` with a guide"
        assert f"deploynas {command}" in (ROOT / row.group(1)).read_text()


def test_the_readme_is_short_and_has_the_command_that_ci_extracts() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 170
    extract = next(line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("test_command="))
    script = f'{extract}\necho "$test_command"'
    found = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.strip().splitlines() == [
        'python3 -m venv .venv && . .venv/bin/activate && pip install -e ".[train,dev]" && pytest -n 2 --dist loadscope'
    ]


def models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models_in(argument)]


def keys_of(model: type[BaseModel]) -> set[str]:
    """Of the model and of all models inside it."""
    keys = set()
    for name, field in model.model_fields.items():
        keys.add(field.alias or name)
        for inner in models_in(field.annotation):
            keys |= keys_of(inner)
    return keys


def written_keys(document: object) -> set[str]:
    if isinstance(document, dict):
        return set(document).union(*(written_keys(value) for value in document.values()))
    if isinstance(document, list):
        return set[str]().union(*(written_keys(value) for value in document))
    return set()


@pytest.mark.parametrize(
    "number, model",
    [(0, SpaceFile), (1, CellSpaceFile), (2, Device), (3, Recipe)],
    ids=["space", "cells", "device", "recipe"],
)
def test_a_format_is_shown_whole_and_explained_key_by_key(number: int, model: type[BaseModel]) -> None:
    example = yaml.safe_load([block for block in blocks(FORMATS) if block.language == "yaml"][number].text)
    model.model_validate(example)
    missing = keys_of(model) - written_keys(example)
    assert not missing, f"the example does not show {missing}"
    sections = re.split(r"^## ", (ROOT / FORMATS).read_text(), flags=re.MULTILINE)
    explained = re.findall(
        r"`[^`\s]*?([\w]+)`", next(text for text in sections if f"schema: {example['schema']}" in text)
    )
    assert keys_of(model) <= set(explained), f"no row for {keys_of(model) - set(explained)}"


def generated() -> dict[str, list[type[BaseModel]]]:
    """The models of generated files, by schema; estimators have one for each kind."""
    found: dict[str, list[type[BaseModel]]] = {}
    for path in sorted((ROOT / "deploynas").rglob("*.py")):
        if '"deploynas/' not in path.read_text():
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for model in vars(module).values():
            own = isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module.__name__
            if own and "schema_" in model.model_fields:
                found.setdefault(model.model_fields["schema_"].default, []).append(model)
    found["deploynas/estimator"] += [estimator_class(kind).File for kind in ESTIMATORS]
    by_hand = ("space", "device", "recipe")
    return {schema: models for schema, models in found.items() if schema.removeprefix("deploynas/") not in by_hand}


def test_every_generated_schema_is_listed_with_its_keys() -> None:
    assert len(generated()) >= 10
    for schema, models in generated().items():
        row = re.search(rf"^\| `{schema}` \|.*$", (ROOT / FORMATS).read_text(), flags=re.MULTILINE)
        assert row, f"no row for {schema}"
        named = set(re.findall(r"\b\w+\b", " ".join(re.findall(r"`([^`]*)`", row.group()))))
        for model in models:
            keys = {field.alias or name for name, field in model.model_fields.items()} - {"schema", "schema_version"}
            assert keys <= named, f"{schema}: {sorted(keys - named)}"


def test_every_message_that_troubleshooting_quotes_is_one_of_ours() -> None:
    """Up to what stands for a value (…, or a number); source lines that a message is broken over are joined."""
    source = "\n".join(path.read_text() for path in sorted((ROOT / "deploynas").rglob("*.py")))
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    rows = re.findall(
        r"^\| (?!it says|---)([^|]*`[^|]*) \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 20
    for row in rows:
        for quoted in re.findall(r"`([^`]+)`", row):
            for piece in re.split(r"\s*(?:…|\b\d+\b)\s*", quoted):
                assert piece in source, f"nothing says {piece!r}"
