"""The target elsewhere, against a real `sshd`: the same answers as here, and every way in which it can fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import psutil
import pytest
from loopback import ROOT, Board

import deploynas as dn
from deploynas import graph
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.bench import bench
from deploynas.latency.hardware import hardware
from deploynas.latency.measure import measure_networks
from deploynas.latency.target import target_of
from deploynas.space import Space


@pytest.fixture
def model(tiny: Space, tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(graph.network(tiny, tiny.smallest(), batch=None), path)
    return path


def test_a_profile_from_elsewhere_has_all_that_one_from_here_has(board: Board, tiny: Space, quick: Device) -> None:
    here, there = dn.profile(quick, tiny).evidence, dn.profile(board.device(quick), tiny).evidence
    assert here and there
    assert [part.name for part in there.parts] == [part.name for part in here.parts]
    assert [len(part.samples_ms) for part in there.parts] == [len(part.samples_ms) for part in here.parts]
    assert [n.choices for n in there.validation.networks] == [n.choices for n in here.validation.networks]
    for same in ("hardware", "versions", "provider", "seed"):
        assert there.provenance[same] == here.provenance[same]
    assert set(there.provenance) == set(here.provenance)
    assert there.provenance["elsewhere"] and not here.provenance["elsewhere"]


def test_files_name_neither_host_nor_python(board: Board, tiny: Space, quick: Device, tmp_path: Path) -> None:
    device = board.device(quick)
    dn.profile(device, tiny).save(tmp_path / "table.json")
    written = (tmp_path / "table.json").read_text()
    assert board.python not in written and '"host"' not in written and "board" not in written
    assert device.hash == quick.hash


def test_facts_are_those_of_the_machine_there(board: Board, quick: Device) -> None:
    target = target_of(board.device(quick))
    facts = target.facts()
    assert facts.hardware == target.hardware() == hardware()
    assert "CPUExecutionProvider" in facts.providers and facts.free_memory_bytes > 0


def test_a_model_travels_once(board: Board, quick: Device, model: Path) -> None:
    result = bench(model, board.device(quick), runs=30)
    kept = board.models / f"{result.model_sha256}.onnx"
    assert kept.read_bytes() == model.read_bytes()
    here = bench(model, quick, runs=30)
    assert len(result.measurement.samples_ms) == len(here.measurement.samples_ms)
    assert [share.name for share in result.breakdown] == [share.name for share in here.breakdown]
    arrived = kept.stat()
    again = bench(model, board.device(quick), runs=30)
    assert again.model_sha256 == result.model_sha256
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (arrived.st_ino, arrived.st_mtime_ns)
    kept.write_bytes(b"damaged")
    target_of(board.device(quick)).breakdown(model)
    assert kept.read_bytes() == model.read_bytes()
    assert not [path for path in board.models.iterdir() if path.suffix != ".onnx"]


def test_networks_are_measured_there_in_the_order_given(board: Board, tiny: Space, quick: Device) -> None:
    networks = [tiny.heaviest(), tiny.smallest()]
    measured = measure_networks(board.device(quick), tiny, networks)
    assert [one.name for one in measured] == ["network/0", "network/1"]


def busy(quick: Device) -> Device:
    """Work for a second or two, so that a connection can be cut in the middle."""
    changes = {"visits": 20, "part_visits": 20, "runs": 40, "min_visit_ms": 4.0}
    return quick.model_copy(update={"effort": quick.effort.model_copy(update=changes)})


def test_a_connection_cut_again_and_again_costs_the_visits_in_hand(
    board: Board, tiny: Space, quick: Device, tmp_path: Path
) -> None:
    device, journal = board.device(busy(quick)), tmp_path / "journal.jsonl"
    cuts, said, cut_next, orphans = 0, [], True, []

    def watch(fraction: float, what: str) -> None:
        nonlocal cuts, cut_next
        said.append(what)
        if "attempt" in what:
            cut_next = cuts < 5
        elif cut_next:  # the first visit of this connection has arrived, hundreds are missing
            cuts, cut_next = cuts + 1, False
            orphans.extend(board.cut())

    table = dn.profile(device, tiny, journal=journal, on_progress=watch)
    waits = [what for what in said if "attempt" in what]
    assert cuts == 5 and len(waits) >= 5 and "no connection to `board`" in waits[0] and "attempt 2 of 8" in waits[0]
    assert table.evidence is not None
    everything = [*table.evidence.parts, *table.evidence.correction.networks, *table.evidence.validation.networks]
    assert {len(one.samples_ms) for one in everything} == {20}
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    visits = Counter(line["entry"] for line in lines)
    assert {visits.pop(one.name) for one in everything} == {20}
    # what is left chose the forms of operators: each as often as planned, none twice
    assert set(visits.values()) == {30} and all(entry.startswith("form/") for entry in visits)
    _, alive = psutil.wait_procs(orphans, timeout=60)
    assert len(orphans) == 5 and not alive, "a worker that lost its connection measures on"


def test_who_never_comes_back_is_given_up_with_what_was_made_kept(
    board: Board, tiny: Space, quick: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, journal = board.device(busy(quick)), tmp_path / "journal.jsonl"
    real, attempts = os.environ["PATH"], []

    def watch(fraction: float, what: str) -> None:
        if "attempt" in what:
            attempts.append(what)
        elif not attempts:
            shutil.copy(board.folder / "ssh_config", tmp_path)
            gone = tmp_path / "ssh"
            gone.write_text('#!/bin/sh\necho "ssh: connect to host board: No route to host" >&2\nexit 255\n')
            gone.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{real}")
            board.cut()

    with pytest.raises(DeployNASError, match=r"`board`: .*No route to host \(8 attempts\)") as raised:
        dn.profile(device, tiny, journal=journal, on_progress=watch)
    assert raised.value.hint == "the same command resumes where it stopped" and len(attempts) == 7
    kept = journal.read_text()
    monkeypatch.setenv("PATH", real)
    table = dn.profile(device, tiny, journal=journal)
    assert kept.count("\n") > 1 and journal.read_text().startswith(kept)
    assert table.evidence is not None and table.evidence.provenance["resumed"]
    assert {len(part.samples_ms) for part in table.evidence.parts} == {20}


def test_a_measurement_of_networks_survives_a_cut(board: Board, tiny: Space, quick: Device) -> None:
    cut = False

    def watch(fraction: float, what: str) -> None:
        nonlocal cut
        if not cut:
            cut = True
            board.cut()

    [measured] = measure_networks(board.device(busy(quick)), tiny, [tiny.heaviest()], on_progress=watch)
    assert cut and len(measured.samples_ms) == 80  # what one network is visited by one process


def test_a_killed_command_leaves_no_worker_there(board: Board, tiny: Space, quick: Device, tmp_path: Path) -> None:
    long = busy(quick).model_copy(update={"effort": busy(quick).effort.model_copy(update={"visits": 1000})})
    script = (
        "import deploynas as dn, json, sys\n"
        "device = dn.Device.model_validate({**json.loads(sys.argv[1]), 'host': 'board', 'python': sys.argv[2]})\n"
        "space = dn.Space.from_description(json.loads(sys.argv[3]))\n"
        "dn.profile(device, space, on_progress=lambda fraction, what: print(what, flush=True))\n"
    )
    call = [sys.executable, "-c", script, json.dumps(long.describe()), board.python, json.dumps(tiny.describe())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(call, stdout=subprocess.PIPE, env=environment)
    assert process.stdout and process.stdout.readline()  # a visit
    workers = board.workers()
    assert len(workers) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_a_worker_that_hears_nothing_more_ends(tiny: Space, quick: Device) -> None:
    """A link may be dead without anybody closing it: only the silence tells."""
    from deploynas.latency.measure import network_entry
    from deploynas.latency.worker import ABANDONED, MeasureRequest, Plan

    plan = Plan(
        device=quick.describe(),
        space=tiny.describe(),
        entries=[network_entry("n", tiny.heaviest())],
        visits={"n": 1_000_000},
        seed=0,
    )
    call = [sys.executable, "-m", "deploynas.latency.worker"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    assert process.stdin
    process.stdin.write(MeasureRequest(plan=plan, silence_s=0.1).model_dump_json().encode() + b"\n")
    process.stdin.flush()
    assert process.wait() == ABANDONED
    process.stdin.close()


def refused(device: Device) -> InputError:
    with pytest.raises(InputError) as raised:
        target_of(device).facts()
    assert raised.value.hint, raised.value.message
    return raised.value


@pytest.mark.parametrize(
    ("host", "said", "mends"),
    [
        ("stranger", "`stranger` accepts no key from here", "`ssh-copy-id stranger`"),
        ("unknown", "the host key of `unknown` is not known here", "`ssh unknown true`"),
        ("changed", "its host key has changed", "`ssh-keygen -R changed`"),
    ],
)
def test_a_host_that_does_not_let_us_in(host: str, said: str, mends: str, board: Board, quick: Device) -> None:
    error = refused(board.device(quick, host))
    assert said in error.message and mends in (error.hint or "")


@pytest.mark.parametrize(("host", "said"), [("nowhere", "Connection refused"), ("no-such-host.invalid", "resolve")])
def test_a_host_that_is_not_there_is_tried_once(host: str, said: str, board: Board, quick: Device) -> None:
    waits: list[str] = []
    with pytest.raises(DeployNASError, match=said) as raised:
        target_of(board.device(quick, host), waits.append).facts()
    assert f"`{host}`" in raised.value.message and raised.value.hint == f"`ssh {host} true` must succeed" and not waits


def other_version(folder: Path, file: str, content: str) -> Path:
    """The package with one of its files replaced."""
    package = folder / "deploynas"
    shutil.copytree(ROOT / "deploynas", package, ignore=shutil.ignore_patterns("__pycache__", "embedded", "shipped"))
    (package / file).write_text(content)
    return folder


def test_another_version_there_is_refused(board: Board, quick: Device, tmp_path: Path) -> None:
    init = (ROOT / "deploynas" / "__init__.py").read_text().replace(dn.__version__, "0.0.7")
    folder = other_version(tmp_path, "__init__.py", init)
    python = f"env PYTHONPATH={folder} {sys.executable}"
    error = refused(board.device(quick, python=python))
    assert f"`board` has deploynas 0.0.7, here it is {dn.__version__}" in error.message
    assert error.hint == f"`ssh board {python} -m pip install deploynas=={dn.__version__}`"


def test_a_version_that_does_not_understand_us_is_refused(board: Board, quick: Device, tmp_path: Path) -> None:
    """As the first one was: a plan, and nothing else, until stdin ends."""
    worker = "import sys\nfrom pydantic import BaseModel\n\n\nclass Plan(BaseModel):\n    seed: int\n\n\n"
    folder = other_version(tmp_path, "latency/worker.py", worker + "Plan.model_validate_json(sys.stdin.read())\n")
    error = refused(board.device(quick, python=f"env PYTHONPATH={folder} {sys.executable}"))
    assert "`board` has another version of deploynas" in error.message and "pip install" in (error.hint or "")


def test_a_target_without_the_package_names_the_command_that_installs_it(board: Board, quick: Device) -> None:
    bare = f"{sys.executable} -S -I"
    error = refused(board.device(quick, python=bare))
    assert error.message == f"`board` has no deploynas {dn.__version__} in `{bare}`"
    assert error.hint == f"`ssh board {bare} -m pip install deploynas=={dn.__version__}`"


def test_a_target_without_what_the_package_needs(board: Board, quick: Device) -> None:
    error = refused(board.device(quick, python=f"env PYTHONPATH={ROOT} {sys.executable} -S"))
    assert "`board` has no package `" in error.message and "pip install" in (error.hint or "")


@pytest.mark.parametrize("python", ["no-such-python", "/no/such/python", "/etc"])
def test_a_target_without_python(python: str, board: Board, quick: Device) -> None:
    error = refused(board.device(quick, python=python))
    assert error.message == f"`board` has no command `{python}`" and "`python: ~/venv/bin/python`" in (error.hint or "")


def test_what_is_no_python_is_refused(board: Board, quick: Device) -> None:
    assert "does not answer as a Python" in refused(board.device(quick, python="true")).message


def test_a_shell_that_talks_is_refused(board: Board, quick: Device) -> None:
    error = refused(board.device(quick, python=f"echo Welcome; {board.python}"))
    assert "`board` prints `Welcome`" in error.message and ".bashrc" in (error.hint or "")


def test_a_provider_that_is_not_there_is_installed_there(board: Board, quick: Device) -> None:
    error = refused(board.device(quick, provider="tensorrt"))
    assert "needs `TensorrtExecutionProvider`" in error.message
    assert f'`ssh board {board.python} -m pip install "onnxruntime-gpu[cuda,cudnn]" tensorrt`' in (error.hint or "")


def test_the_wrong_machine_there_is_refused(board: Board, quick: Device) -> None:
    like = Device(name="old", provider="cpu", hardware={"machine": "vax"})
    error = refused(board.device(like))
    assert "machine `vax`, `board` is" in error.message and "`host`" in (error.hint or "")


def test_without_ssh_here_nothing_is_reached(board: Board, quick: Device, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(board.device(quick)).message == "there is no `ssh` here"


def test_an_error_there_names_the_file_here(board: Board, quick: Device, tiny: Space, tmp_path: Path) -> None:
    path = tmp_path / "strange.onnx"
    strange = graph.network(tiny, tiny.smallest())
    strange.graph.node[0].op_type = "Teleport"
    path.write_bytes(strange.SerializeToString())
    with pytest.raises(InputError) as raised:
        bench(path, board.device(quick), runs=30)
    assert str(path) in raised.value.message and str(board.models) not in raised.value.message


def test_a_model_in_several_files_is_not_sent(board: Board, quick: Device, tiny: Space, tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    onnx.save(graph.network(tiny, tiny.smallest()), path, save_as_external_data=True, size_threshold=0)
    with pytest.raises(InputError, match="in a file beside it") as raised:
        bench(path, board.device(quick), runs=30)
    assert "onnx.save(onnx.load(" in (raised.value.hint or "")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "", "two words", "a\nb"])
def test_a_host_is_one_word_and_no_option(host: str, tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(f"name: x\nprovider: cpu\nhost: {json.dumps(host)}\n")
    with pytest.raises(InputError, match="must be what `ssh` takes"):
        Device.load(path)


@pytest.fixture
def folder(board: Board, quick: Device, tiny_path: Path, tmp_path: Path) -> Path:
    """Device files of the board and of this machine."""
    effort = json.dumps(quick.effort.model_dump())
    for name, host in {"here": None, "there": "board", "beside": "twin", "lost": "nowhere"}.items():
        where = f"host: {host}\npython: {board.python}\n" if host else ""
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nprovider: cpu\n{where}effort: {effort}\n")
    (tmp_path / "devices").mkdir()
    shutil.copy(tmp_path / "there.yaml", tmp_path / "devices")
    shutil.copy(tiny_path, tmp_path / "tiny.yaml")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "cli.py"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_one_command_profiles_several_devices(folder: Path) -> None:
    devices = [word for name in ("here", "there", "beside", "lost") for word in ("--device", f"{name}.yaml")]
    done = run(folder, "profile", *devices, "--space", "tiny.yaml", "--json")
    assert done.returncode == 1 and "no connection to `nowhere`" in done.stderr, done.stderr
    assert "hint: `ssh nowhere true` must succeed" in done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert [table["device"] for table in tables] == ["here", "there", "beside"]
    assert all((folder / table["path"]).exists() for table in tables)
    again = run(folder, "profile", "--device", "there.yaml", "--space", "tiny.yaml")
    assert again.returncode == 0 and "is there already" in again.stderr


@pytest.mark.parametrize("more", [["--device", "here.yaml"], ["--device", "there.yaml", "--out", "one.json"]])
def test_two_tables_never_become_one_file(more: list[str], folder: Path) -> None:
    done = run(folder, "profile", "--device", "here.yaml", "--space", "tiny.yaml", *more)
    assert done.returncode == 2 and not (folder / "one.json").exists()


def test_devices_asks_other_machines_only_when_told(folder: Path) -> None:
    quiet, asked = (run(folder, "devices", "--json", *more) for more in ([], ["--connect"]))
    [before] = [one for one in json.loads(quiet.stdout)["devices"] if one["name"] == "there"]
    [after] = [one for one in json.loads(asked.stdout)["devices"] if one["name"] == "there"]
    assert before["host"] == "board" and "--connect" in before["status"]
    assert after["status"] == "ready"
    assert "board" in run(folder, "devices").stdout


def test_a_table_from_elsewhere_is_not_silently_measured_here(board: Board, tiny: Space, quick: Device) -> None:
    from deploynas.latency.verify import verify
    from deploynas.pipeline.rerank import device_of, differences

    table = dn.profile(board.device(quick), tiny)
    with pytest.raises(InputError, match="on another machine") as raised:
        device_of([table])
    assert "`host`" in (raised.value.hint or "")
    assert differences(board.device(quick), [table]) is None
    with pytest.raises(InputError, match="on another machine"):
        verify(table)
    assert verify(table, device=board.device(quick)).networks
