"""The contract of every device that ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from deploynas.device import Device, shipped
from deploynas.errors import InputError

EVERY = pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)


@EVERY
def test_it_loads_by_name_and_says_what_it_is(path: Path) -> None:
    device = Device.load(path.stem)
    assert device == Device.load(path) and device.name == path.stem and len(device.description) > 10


@EVERY
def test_it_survives_json_with_its_hash(path: Path) -> None:
    device = Device.load(path)
    again = Device.from_record(json.loads(json.dumps(device.describe())))
    assert again == device and again.hash == device.hash


@EVERY
def test_its_hash_is_of_settings_and_not_of_words(path: Path) -> None:
    device = Device.load(path)
    assert device.hash == device.model_copy(update={"name": "other", "description": "other"}).hash
    assert device.hash != device.model_copy(update={"batch": device.batch + 1}).hash


@EVERY
def test_a_key_that_nobody_knows_is_refused_in_the_file_and_ignored_in_a_record(path: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    changed = {**content, "colour": "red", "effort": {**content.get("effort", {}), "mood": "good"}}
    (tmp_path / path.name).write_text(yaml.safe_dump(changed))
    with pytest.raises(InputError, match=r"`effort\.mood` is an unknown key") as refused:
        Device.load(tmp_path / path.name)
    assert "`colour` is an unknown key" in refused.value.message
    assert "known keys in `effort`: `workers`" in (refused.value.hint or "")
    assert Device.from_record(changed) == Device.load(path)
