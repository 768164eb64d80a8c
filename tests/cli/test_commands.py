"""The commands of measuring, run as a person runs them: real processes, exit codes, one paragraph per error."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from deploynas import graph
from deploynas.cli import COMMANDS
from deploynas.space import Space

ROOT = Path(__file__).parent.parent.parent
FAST = (
    "name: fast\nprovider: cpu\nbudgets: {latency_ms: 5}\n"
    "effort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 2, min_visit_ms: 0.0, "
    "correction_networks: 4, validation_networks: 3, max_relative_error: 1.0, time_limit_s: 0.1}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Space, tiny_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "fast.yaml").write_text(FAST)
    (folder / "tiny.yaml").write_text(tiny_path.read_text())
    onnx.save(graph.network(tiny, tiny.smallest(), batch=None), folder / "small.onnx")
    assert run(folder, *PROFILE).returncode == 0
    return folder


PROFILE = ["profile", "--device", "fast.yaml", "--space", "tiny.yaml", "--out", "table.json", "--json"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    call = [sys.executable, str(ROOT / "cli.py"), *arguments]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)


def test_profile_writes_a_table_and_is_not_repeated(folder: Path) -> None:
    before = (folder / "table.json").read_bytes()
    again = run(folder, *PROFILE)
    assert again.returncode == 0 and "is there already" in again.stderr
    assert json.loads(again.stdout)["validation"]["networks"] == 3
    assert (folder / "table.json").read_bytes() == before
    assert not list(folder.glob("*.partial.jsonl"))


def test_a_finished_table_of_another_space_is_not_overwritten(folder: Path) -> None:
    before = (folder / "table.json").read_bytes()
    other = run(folder, "profile", "--device", "fast.yaml", "--space", "fashion", "--out", "table.json")
    assert other.returncode == 2 and "another device or space" in other.stderr
    assert (folder / "table.json").read_bytes() == before


def test_ctrl_c_keeps_what_was_measured(folder: Path) -> None:
    import signal
    import time

    slow = FAST.replace("visits: 2", "visits: 1000")
    (folder / "slow.yaml").write_text(slow)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, str(ROOT / "cli.py"), "profile", "--device", "slow.yaml", "--space", "tiny.yaml"]
    process = subprocess.Popen(
        [*call, "--out", "slow.json"],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # whoever runs the tests in the background may have had Ctrl-C ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    journal = folder / "slow.partial.jsonl"
    while not journal.exists() or journal.read_text().count("\n") < 10:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"the same command resumes" in said and b"Traceback" not in said
    assert journal.read_text().count("\n") >= 10


def test_bench_and_check_work_together(folder: Path) -> None:
    for name in ("one.json", "two.json"):
        done = run(folder, "bench", "small.onnx", "--device", "fast.yaml", "--runs", "30", "--out", name)
        assert done.returncode == 0, done.stderr
        assert "stage1/block1" in done.stdout and "throughput" in done.stdout
    checked = run(folder, "check", "one.json", "two.json", "--threshold", "9", "--markdown", "check.md", "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["schema"] == "deploynas/comparison"
    assert (folder / "check.md").read_text().startswith("**")


def test_bench_compares_files_and_numbers_of_threads(folder: Path) -> None:
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "small.onnx").write_bytes((folder / "small.onnx").read_bytes())
    common = ["--device", "fast.yaml", "--runs", "30", "--max-latency-ms", "5000"]
    done = run(folder, "bench", "small.onnx", "other/small.onnx", *common, "--out", "both.json")
    assert done.returncode == 0, done.stderr
    both = json.loads((folder / "both.json").read_text())
    assert both["schema"] == "deploynas/bench-comparison" and len(both["results"]) == 2
    assert both["ratios"][0]["base"] == "small.onnx" and both["ratios"][0]["other"] == "other/small.onnx"
    assert any(words in done.stderr for words in ("no difference larger than", "times faster", "times slower"))
    done = run(folder, "bench", "small.onnx", "--threads", "1,2", *common, "--json")
    assert [result["device"]["threads"] for result in json.loads(done.stdout)["results"]] == [1, 2]


def test_bench_takes_values_and_several_shapes(folder: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "time"])
    rate = helper.make_tensor_value_info("sr", TensorProto.INT64, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["x", "rate"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x, rate], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    onnx.save(model, folder / "voice.onnx")
    given = ["--shape", "x=1,256", "--shape", "x=1,512", "--input", "sr=16000"]
    done = run(folder, "bench", "voice.onnx", "--device", "fast.yaml", "--runs", "10", *given, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["inputs"]["shapes"]["x"] for result in results] == [[1, 256], [1, 512]]
    assert all(result["inputs"]["values"] == {"sr": [16000]} for result in results)


@pytest.mark.parametrize(
    ("device", "arguments", "code"),
    [
        ("fast.yaml", ["--max-latency-ms", "5000"], 0),
        ("fast.yaml", ["--max-latency-ms", "0.0000001"], 3),
        ("impossible.yaml", [], 3),
    ],
)
def test_bench_gates_by_itself(device: str, arguments: list[str], code: int, folder: Path) -> None:
    (folder / "impossible.yaml").write_text(FAST.replace("latency_ms: 5", "latency_ms: 0.0000001"))
    done = run(folder, "bench", "small.onnx", "--device", device, "--runs", "10", *arguments)
    assert done.returncode == code, done.stderr
    assert ("is held" if code == 0 else "is missed") in done.stderr


def test_a_table_is_verified(folder: Path) -> None:
    """That of this machine holds, as far as so few visits can tell; one of networks 100 times as fast does not."""
    done = run(folder, "profile", "--verify", "table.json", "--threshold", "9", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "holds"
    table = json.loads((folder / "table.json").read_text())
    for network in table["evidence"]["validation"]["networks"]:
        network["latency_ms"] /= 100
        for times in ("samples_ms", "waited_ms"):
            network[times] = [[ms / 100 for ms in visit] for visit in network[times]]
    (folder / "wrong.json").write_text(json.dumps(table))
    done = run(folder, "profile", "--verify", "wrong.json")
    assert done.returncode == 3 and "no longer holds" in done.stderr and "--force" in done.stderr


def test_check_fails_with_code_3_on_a_regression(folder: Path) -> None:
    table = json.loads((folder / "table.json").read_text())
    for part in table["evidence"]["parts"]:
        part |= {"samples_ms": [[1.0 + 0.001 * i] for i in range(12)], "slowdown": [1.0] * 12}
        part |= {"latency_ms": 1.0, "relative_error": 0.01, "waited_ms": [], "stable": True}
    (folder / "base.json").write_text(json.dumps(table))
    slow = table["evidence"]["parts"][0]
    slow |= {"latency_ms": 1.5, "samples_ms": [[1.5 + 0.001 * i] for i in range(12)]}
    (folder / "slower.json").write_text(json.dumps(table))
    done = run(folder, "check", "base.json", "slower.json")
    assert done.returncode == 3 and "verdict: slower" in done.stderr and slow["name"] in done.stdout
    assert run(folder, "check", "base.json", "base.json").returncode == 0


def test_devices_lists_what_this_machine_can_do(folder: Path) -> None:
    done = run(ROOT, "devices", "--json")
    listed = {device["name"]: device["status"] for device in json.loads(done.stdout)["devices"]}
    assert listed["cpu-1t"] == "ready" and "not installed" in listed["tensorrt-batch1"]


def test_a_broken_device_file_is_listed_as_broken_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "bad.yaml").write_text("name: bad\nprovider: abacus\n")
    listed = json.loads(run(tmp_path, "devices", "--json").stdout)["devices"]
    status = {device["name"]: device["status"] for device in listed}
    assert status["cpu-1t"] == "ready" and status["bad"].startswith("broken: devices/bad.yaml has 1 mistake")
    shown = run(tmp_path, "devices")
    assert shown.returncode == 0 and "cpu-all" in shown.stdout and "`provider` must be one of" in shown.stderr


def test_a_file_of_the_wrong_kind_names_the_commands_that_make_both(folder: Path) -> None:
    done = run(folder, "explain", "table.json")
    assert done.returncode == 2 and "expected a file of schema `deploynas/estimator`" in done.stderr
    assert "hint: `deploynas estimate` writes one; this one is from `deploynas profile`" in done.stderr


def test_an_unknown_key_is_answered_with_those_that_are_known_there(folder: Path) -> None:
    text = (folder / "tiny.yaml").read_text()
    (folder / "inside.yaml").write_text(text.replace("se: [0, 0.25]", "squeeze: [0, 0.25]"))
    (folder / "above.yaml").write_text(text + "squeeze: 1\n")
    inside = run(folder, "profile", "--space", "inside.yaml")
    assert "known keys in `stages`: `out`, " in inside.stderr and "`se`" in inside.stderr
    above = run(folder, "profile", "--space", "above.yaml")
    assert "`stages` (`out`, " in above.stderr and "`se`, `blocks`)" in above.stderr


@pytest.mark.parametrize(("command", "resumes"), [("bench", False), ("profile", True)])
def test_only_commands_that_resume_promise_it(command: str, resumes: bool, folder: Path, monkeypatch, capsys) -> None:
    from deploynas.cli import main

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    for module in ("bench", "profile"):
        monkeypatch.setattr(f"deploynas.latency.{module}.target_of", interrupted)
    what = {"bench": ["bench", "small.onnx"], "profile": ["profile", "--space", "tiny.yaml"]}[command]
    monkeypatch.setattr(sys, "argv", ["deploynas", *what, "--device", "fast.yaml", "--out", "never.json"])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 130 and ("the same command resumes" in said) == resumes
    assert not (folder / "never.json").exists()


def test_waiting_is_counted_from_the_start_of_the_process() -> None:
    script = "import time; time.sleep(0.5)\nfrom deploynas.cli.console import seconds_since_start as s\nprint(s())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) >= 0.5


@pytest.mark.parametrize("command", COMMANDS)
def test_o_is_out_wherever_there_is_an_out(command: str) -> None:
    options = importlib.import_module(f"deploynas.cli.{command}").command.params
    outs = [option for option in options if "--out" in option.opts]
    assert all("-o" in option.opts for option in outs)
    assert bool(outs) == (command not in ("devices", "explain"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile", "--device", "no-such-device"],
        ["profile", "--space", "missing.yaml"],
        ["profile", "--device", "tiny.yaml"],
        ["profile", "--space", "table.json"],
        ["profile", "--seed", "many"],
        ["profile", "--colour", "red"],
        ["bench", "missing.onnx"],
        ["bench", "fast.yaml"],
        ["bench", "small.onnx", "--device", "cuda-batch64"],
        ["bench", "small.onnx", "--shape", "input"],
        ["bench", "small.onnx", "--shape", "input=1,-3,16,12"],
        ["bench", "small.onnx", "--shape", "other=1,1,16,12"],
        ["check", "table.json", "missing.json"],
        ["check", "table.json", "small.onnx"],
        ["check", "table.json", "table.json", "--threshold", "-1"],
        ["fly"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_paragraph_and_code_2(arguments: list[str], folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run(folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
