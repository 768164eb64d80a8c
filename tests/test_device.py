from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploynas import graph
from deploynas.device import Device, device_files, shipped
from deploynas.errors import InputError
from deploynas.latency.facts import facts_here, require_hardware, require_provider
from deploynas.latency.hardware import hardware
from deploynas.latency.session import Session
from deploynas.latency.worker import Plan, Visit, measure
from deploynas.space import Space


def test_the_promised_devices_ship() -> None:
    promised = "cpu-1t cpu-all cpu-1t-int8 cpu-1t-batch8 cuda-batch64 tensorrt-batch1 openvino-cpu arm64-4t"
    assert set(promised.split()) <= {path.stem for path in shipped()}


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: x\nprovider: quantum\nthreads: 0\nbatch: -1\nstatistic: p100\ncolour: red\n"
        "effort:\n  visits: many\n  runs: true\nbatch: 2\n"
    )
    with pytest.raises(InputError) as raised:
        Device.load(path)
    message = raised.value.message
    for said in (
        "bad.yaml:2: `provider`",
        "bad.yaml:3: `threads`",
        "bad.yaml:5: `statistic`",
        "bad.yaml:6: `colour` is an unknown key",
        "bad.yaml:8: `effort.visits`",
        "bad.yaml:9: `effort.runs`",
        "bad.yaml:10: `batch` appears twice",
    ):
        assert said in message
    assert "known keys" in (raised.value.hint or "")


@pytest.mark.parametrize("content", ["", "- a\n- b\n", "name: [", "\x00"])
def test_what_is_not_a_device_file_is_an_input_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(content)
    with pytest.raises(InputError):
        Device.load(path)


def test_the_hash_names_what_latency_depends_on() -> None:
    device = Device(name="a", provider="cpu")
    assert device.hash == Device(name="b", provider="CPUExecutionProvider", description="words").hash
    assert device.hash != Device(name="a", provider="cpu", threads=2).hash


def test_a_provider_that_is_not_installed_names_its_package() -> None:
    with pytest.raises(InputError) as raised:
        require_provider(Device(name="gpu", provider="tensorrt"), facts_here().providers)
    assert "TensorrtExecutionProvider" in raised.value.message
    assert "onnxruntime-gpu" in (raised.value.hint or "")


def test_the_wrong_machine_is_refused() -> None:
    expected = {"machine": "vax", "min_cores": 4096, "processor_contains": "abacus"}
    device = Device(name="old", provider="cpu", hardware=expected)
    with pytest.raises(InputError) as raised:
        require_hardware(device, hardware())
    assert all(said in raised.value.message for said in ("vax", "4096 cores", "abacus", hardware().machine))


def test_nodes_that_fall_back_to_the_cpu_are_refused(monkeypatch: pytest.MonkeyPatch, tiny) -> None:
    """A provider that is installed but hands its nodes back: Azure's runs no operator of ours."""
    import onnxruntime

    from deploynas import graph
    from deploynas.errors import DeployNASError

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build of the runtime has no second provider")
    device = Device(name="azure", provider="AzureExecutionProvider")
    with pytest.raises(DeployNASError, match=r"hands 6 node\(s\) back to the CPU: Conv `part/expand`"):
        Session(graph.block(tiny, 0, 0, 0).SerializeToString(), device)


def test_session_options_reach_the_runtime_and_name_another_device(tiny: Space) -> None:
    plain = Device(name="cpu", provider="cpu")
    told = plain.model_copy(update={"session_options": {"session.intra_op.allow_spinning": False}})
    assert plain.hash != told.hash
    session = Session(graph.network(tiny, tiny.smallest()).SerializeToString(), told)
    options = session._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_own_devices_add_to_the_shipped_ones_and_hide_only_their_namesakes(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "mine.yaml").write_text("name: mine\nprovider: cpu\n")
    (tmp_path / "devices" / "cpu-1t.yaml").write_text("name: cpu-1t\nprovider: cpu\nthreads: 7\n")
    monkeypatch.chdir(tmp_path)
    assert Device.load("mine").threads == 1 and Device.load("cpu-1t").threads == 7
    assert set(device_files()) == {"mine", *(path.stem for path in shipped())}
    assert Device.load("cpu-all").threads == "all"


def test_a_device_is_found_by_name_without_looking_through_its_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "v1.board.yaml").write_text("name: mine\nprovider: cpu\n")
    monkeypatch.chdir(tmp_path)

    def looked_through(*_: object) -> list[Path]:
        raise AssertionError("a folder of ten thousand devices would be read for every one of them")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", looked_through)
        assert Device.load("v1.board").name == "mine"
        assert Device.load("cpu-1t").name == "cpu-1t"
    for name in ("devices/cpu-1t", "../devices/v1.board", ""):  # a name is no path
        with pytest.raises(InputError):
            Device.load(name)


def test_of_many_devices_an_error_lists_those_of_similar_names(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "devices").mkdir()
    for i in range(200):
        (tmp_path / "devices" / f"board-{i}.yaml").write_text(f"name: board-{i}\nprovider: cpu\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        Device.load("bord-77")
    hint = str(raised.value.hint)
    more = len(device_files()) - 30
    assert hint.startswith("one of board-77, ") and f" and {more} more (`deploynas devices` lists them)" in hint


def test_this_machine_is_asked_once_for_all_devices(monkeypatch, capsys) -> None:
    from deploynas.cli import devices
    from deploynas.latency import facts

    asked = []

    def counted() -> facts.Facts:
        asked.append(1)
        return found

    found = facts_here()
    monkeypatch.setattr(facts, "facts_here", counted)
    devices.command.main(["--json"], standalone_mode=False)
    listed = {one["name"]: one["status"] for one in json.loads(capsys.readouterr().out)["devices"]}
    assert len(asked) == 1 and listed["cpu-1t"] == "ready"
    assert "TensorrtExecutionProvider" in listed["tensorrt-batch1"]  # judged by what was found, one by one


def test_a_worker_takes_a_plan_of_a_newer_version(quick: Device, tiny: Space, capsys) -> None:
    """Keys that it does not know, in the plan and in the device, are left out."""
    entry = {"key": "stem", "kind": "part", "colour": "red"}
    device = {**quick.describe(), "colour": "red", "effort": {**quick.effort.model_dump(), "mood": "good"}}
    plan = {"device": device, "space": tiny.describe(), "entries": [entry], "visits": {"stem": 1}, "seed": 0, "new": 1}
    measure(Plan.model_validate(plan))
    assert Visit.model_validate_json(capsys.readouterr().out).entry == "stem"
