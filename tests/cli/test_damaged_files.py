"""Files made by hand or by a stranger: each is refused in one paragraph with exit code 2, and no gate is green for it.

All of them start as real files of the first version and are changed in one place.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploynas.cli import main

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
TABLE, BENCH, REPORT = "latency-table.profiled.json", "bench.base.json", "bundle/report.json"
ESTIMATOR, SPACE, MANIFEST = "estimator.bilinear.json", "space.full.yaml", "bundle/manifest.json"
Change = Callable[[dict], Any]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """A command by its words: exit code, and what it said to people."""
    monkeypatch.chdir(tmp_path)

    def asked(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["deploynas", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return asked


def changed(name: str, change: Change, folder: Path) -> Path:
    data = json.loads((GOLDEN / name).read_text())
    change(data)
    path = folder / Path(name).name
    path.write_text(json.dumps(data))
    return path


def refused(answer: tuple[int, str], *words: str) -> None:
    code, said = answer
    assert code == 2, said
    paragraph, *hint = said.strip().split("\nhint: ")
    assert paragraph.startswith("error: ") and len(said) < 1000 and len(hint) <= 1
    for word in words:
        assert word in said


# -- numbers and nesting that no file may have -----------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        ("[" * 2000 + "]" * 2000, "nested"),
        ("[" * 100 + "]" * 100, "nested"),
        ("1" * 4301, "digits"),
        (f"1{'0' * 400}", "64 bits"),
        ("NaN", "`evidence` is nan"),
        ("-Infinity", "`evidence` is -inf"),
        ("1e999", "`evidence` is inf"),
        (r'"\ud800"', "half of a character"),
    ],
)
@pytest.mark.parametrize("command", ["check", "report", "search"])
def test_what_json_allows_and_no_file_may_have(ask, tmp_path: Path, inside: str, named: str, command: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'{{"schema": "deploynas/report", "schema_version": 1, "evidence": {inside}}}')
    calls = {"check": (path, path), "report": (path,), "search": ("--estimator", path, "--latency", f"{path}:1")}
    refused(ask(command, *calls[command]), "file.json", named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: " + "[" * 2000 + "]" * 2000, "nested"),
        (f"a: {'1' * 4301}", "cannot be read"),
        ("a: .nan", "`a` is nan"),
        ("a: 2001-99-99", "cannot be read"),
        ("a: !!bool perhaps", "cannot be read"),
        ("a: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("a: &a [*a]", "aliases"),
        ("a0: &a0 [x, x]\n" + "\n".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]" for i in range(40)), "aliases"),
        ("", "found nothing"),
        ("x" * (300 << 10), "bytes"),
    ],
)
def test_what_yaml_allows_and_no_file_may_have(ask, tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    refused(ask("profile", "--space", "file.yaml", "--device", "cpu-1t", "--out", "out.json"), "file.yaml", named)


def test_a_file_with_thousands_of_mistakes_is_refused_in_a_paragraph(ask, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("\n".join(f"{'k' * 500}{i}: 1" for i in range(100)))
    code, said = ask("profile", "--space", "file.yaml", "--device", "cpu-1t", "--out", "out.json")
    assert code == 2 and "more" in said and len(said) < 6000


# -- tables and benches ----------------------------------------------------------------------------


def every_measurement(data: dict) -> list[dict]:
    if "measurement" in data:
        return [data["measurement"]]
    evidence = data["evidence"]
    return [*evidence["parts"], *evidence["correction"]["networks"], *evidence["validation"]["networks"]]


def of_each(**told: object) -> Change:
    return lambda data: [measured.update(told) for measured in every_measurement(data)]


def without(*path: str) -> Change:
    def change(data: dict) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


MEASURED: dict[str, tuple[Change, str]] = {
    "latency 0": (of_each(latency_ms=0), "greater than 0"),
    "latency negative": (of_each(latency_ms=-1.0), "greater than 0"),
    "latency missing": (lambda data: every_measurement(data)[0].pop("latency_ms"), "missing"),
    "latency null": (of_each(latency_ms=None), "number"),
    "latency NaN": (of_each(latency_ms=float("nan")), "is nan"),
    "latency as text": (of_each(latency_ms="nan"), "number"),
    "another latency": (of_each(latency_ms=1e6), "its samples have"),
    "no samples": (of_each(samples_ms=[]), "at least 1 item"),
    "an empty visit": (lambda data: every_measurement(data)[0]["samples_ms"][0].clear(), "at least 1 item"),
    "a sample of 0": (lambda data: every_measurement(data)[0]["samples_ms"][0].__setitem__(0, 0.0), "greater than 0"),
    "fewer samples than slowdowns": (lambda data: every_measurement(data)[0]["samples_ms"].pop(), "as many visits"),
    "a slowdown of 0": (lambda data: every_measurement(data)[0]["slowdown"].__setitem__(0, 0), "greater than 0"),
    "fewer waits than samples": (of_each(waited_ms=[[0.0]]), "as many visits"),
    "a wait as long as nothing takes": (
        lambda data: every_measurement(data)[0].update(
            waited_ms=[[ms + 1 for ms in visit] for visit in every_measurement(data)[0]["samples_ms"]]
        ),
        "no longer than each sample",
    ),
}


@pytest.mark.parametrize("name", [TABLE, BENCH])
@pytest.mark.parametrize("case", MEASURED)
def test_a_measurement_that_is_none_is_never_the_same(ask, tmp_path: Path, name: str, case: str) -> None:
    change, named = MEASURED[case]
    path = changed(name, lambda data: [of_each(slowdown=slow(data))(data), change(data)], tmp_path)
    for base, new in ((GOLDEN / name, path), (path, GOLDEN / name), (path, path)):
        refused(ask("check", base, new), path.name, named)


def slow(data: dict) -> list[float]:
    """The first version of benches knew no slowdowns."""
    return [1.0] * len(every_measurement(data)[0]["samples_ms"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("evidence", "device", "name"), "`evidence.device.name` is missing"),
        (without("evidence", "device"), "`evidence.device` is missing"),
        (without("evidence", "provenance", "hardware"), "hardware"),
        (without("evidence", "provenance"), "`evidence.provenance` is missing"),
        (lambda data: data["evidence"]["device"].update(statistic="p500"), "percentile"),
        (lambda data: data.update(fixed_ms=0, block_ms=zeros(data["block_ms"])), "not those of its evidence"),
        (lambda data: data["block_ms"][0].pop(), "block_ms"),
        (lambda data: data.update(block_ms=None), "block_ms"),
    ],
)
def test_a_table_that_is_not_one_piece(ask, tmp_path: Path, change: Change, named: str) -> None:
    path = changed(TABLE, change, tmp_path)
    refused(ask("check", GOLDEN / TABLE, path), named)
    refused(ask("search", "--latency", f"{path}:1", "--estimator", GOLDEN / ESTIMATOR), named)


def zeros(block_ms: list) -> list:
    return [[[0.0] * len(row) for row in stage] for stage in block_ms]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("device"), "`device` is missing"),
        (without("device", "statistic"), ""),
        (without("provenance", "hardware"), "hardware"),
        (lambda data: data.update(processes=[0]), "as many `processes`"),
        (lambda data: data.update(mean_ms=0), "greater than 0"),
    ],
)
def test_a_bench_that_is_not_one_piece(ask, tmp_path: Path, change: Change, named: str) -> None:
    path = changed(BENCH, change, tmp_path)
    code, said = ask("check", GOLDEN / BENCH, path)
    if named:
        refused((code, said), named)
    else:
        assert code == 0 and "Traceback" not in said  # a device whose statistic is the default


def test_other_device_settings_are_not_compared_whatever_their_hash_says(ask, tmp_path: Path) -> None:
    path = changed(BENCH, lambda data: data["device"].update(threads=2), tmp_path)
    refused(ask("check", GOLDEN / BENCH, path), "different device settings")


@pytest.mark.parametrize("dropped_from", ["BASE", "NEW"])
def test_entries_that_only_one_table_has_fail_the_gate_by_name(ask, tmp_path: Path, dropped_from: str) -> None:
    parts = json.loads((GOLDEN / TABLE).read_text())["evidence"]["parts"]
    kept = len(parts) // 2
    path = changed(TABLE, lambda data: data["evidence"].update(parts=parts[:kept]), tmp_path)
    files = (path, GOLDEN / TABLE) if dropped_from == "BASE" else (GOLDEN / TABLE, path)
    code, said = ask("check", *files, "--out", "found.json", "--markdown", "found.md")
    assert code == 3 and "verdict: inconclusive" in said
    assert f"{len(parts) - kept} of " in said and parts[kept]["name"] in said
    found = json.loads((tmp_path / "found.json").read_text())
    names = [part["name"] for part in parts[kept:]]
    assert found["only_in_base" if dropped_from == "NEW" else "only_in_new"] == names
    assert found["verdict"] == "inconclusive" and names[0] in (tmp_path / "found.md").read_text()


def test_noise_fails_a_strict_gate_alone(ask, tmp_path: Path) -> None:
    path = changed(BENCH, of_each(relative_error=5.0), tmp_path)
    assert ask("check", path, path)[0] == 0
    assert ask("check", path, path, "--strict")[0] == 3


def test_what_was_observed_once_is_never_the_same(ask, tmp_path: Path) -> None:
    def once(data: dict) -> None:
        for measured in every_measurement(data):
            measured.update(samples_ms=[[measured["latency_ms"]]], slowdown=[], relative_error=0.0)

    path = changed(BENCH, once, tmp_path)
    code, said = ask("check", path, path, "--strict")
    assert code == 3 and "observed once" in said


# -- estimators, reports, manifests ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [["bilinear"], {"a": 1}, None, 7, "bilinear " * 1000])
def test_an_estimator_of_no_known_kind(ask, tmp_path: Path, kind: object) -> None:
    path = changed(ESTIMATOR, lambda data: data.update(kind=kind), tmp_path)
    refused(ask("search", "--latency", f"{GOLDEN / TABLE}:1", "--estimator", path), "no estimator of")


@pytest.mark.parametrize("curve", [{"predicted": [0.1, 0.2], "measured": [0.3]}, {"predicted": [], "measured": []}])
def test_an_estimator_whose_curve_has_no_points(ask, tmp_path: Path, curve: dict) -> None:
    path = changed(ESTIMATOR, lambda data: data.update(validation={"networks": 9, "curve": curve}), tmp_path)
    refused(ask("search", "--latency", f"{GOLDEN / TABLE}:1", "--estimator", path), "have points")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.update(files=[]), "at least 1 item"),
        (lambda data: data["files"][0].update(precision="fp7"), "be one of fp32"),
        (lambda data: data.update(gated="fp16"), "precision to deploy"),
        (lambda data: data.update(macs=10**400), "64 bits"),
        (lambda data: data.update(macs=-1), "greater than or equal to 0"),
        (lambda data: data["files"][0].update(latency_ms=0), "greater than 0"),
        (lambda data: data["files"][0].update(path="../../etc/passwd"), "inside the folder"),
        (without("device", "name"), "`device.name` is missing"),
    ],
)
def test_a_report_that_cannot_be_shown(ask, tmp_path: Path, change: Change, named: str) -> None:
    path = changed(REPORT, change, tmp_path)
    before = sorted(tmp_path.iterdir())
    refused(ask("report", path), named)
    refused(ask("report", path, "--markdown"), named)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../b", "C:\\x", "..\\x", "\\\\host\\x", "", "a\nb", "."]
)
def test_a_manifest_names_files_of_its_folder_only(ask, tmp_path: Path, path: str) -> None:
    shutil.copytree(GOLDEN / "bundle", tmp_path / "bundle")
    manifest = changed(MANIFEST, lambda data: data["files"][0].update(path=path), tmp_path)
    shutil.copy(manifest, tmp_path / "bundle")
    refused(ask("report", tmp_path / "bundle"), "inside the folder")


def test_a_link_out_of_the_bundle_is_not_followed(tmp_path: Path) -> None:
    from deploynas.errors import InputError
    from deploynas.export.bundle import check_manifest

    shutil.copytree(GOLDEN / "bundle", tmp_path / "bundle")
    (tmp_path / "bundle" / "model.onnx").rename(tmp_path / "model.onnx")
    (tmp_path / "bundle" / "model.onnx").symlink_to(tmp_path / "model.onnx")
    with pytest.raises(InputError, match="link out of the folder"):
        check_manifest(tmp_path / "bundle")


# -- what fuzzing found ----------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["seed=[", "seed=\x1b[31m", "seed=" + "[" * 3000, "seed==", "seed=!!bool x"])
def test_a_setting_that_is_no_yaml(ask, setting: str) -> None:
    code, said = ask("train", "--space", "fashion", "--out", "run", "--set", setting)
    assert code == 2 and said.startswith("error: ") and "\x1b" not in said and "Traceback" not in said


@pytest.mark.parametrize("number", ["r99999999", "r" + "9" * 400, "e" + "9" * 400, "k" + "9" * 5000])
def test_a_block_that_stands_for_more_than_a_stage_has(number: str) -> None:
    import deploynas as dn
    from deploynas.errors import InputError

    with pytest.raises(InputError, match=r"`r` is how many|not understood"):
        dn.Architecture.parse(f"ir_{number}_k3_s1_e3_c24_nre" + 2 * "|ir_r1_k3_s2_e3_c24_nre", dn.Space.load("fashion"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000 + "]" * 3000,
        "[" + "(" * 150 + ")" * 150 + "]",
        "[" + "1," * 60_000 + "]",
        "[" + "-" * 5000 + "1]",
        "[[1]",
    ],
)
@pytest.mark.parametrize("space", ["fashion", "fashion-cell", "ofa-mbv3"])
def test_lists_that_no_parser_likes(text: str, space: str) -> None:
    import deploynas as dn
    from deploynas.errors import InputError

    for written in (text, f'{{"ks": {text}, "e": [], "d": []}}'):
        with pytest.raises(InputError):
            dn.Architecture.parse(written, dn.Space.load(space))


def test_a_record_of_a_checkpoint_that_is_damaged(tmp_path: Path) -> None:
    from deploynas.errors import InputError
    from deploynas.training.checkpoint_record import CheckpointRecord

    path = changed("checkpoint.network.json", lambda data: data["about"].update(test_accuracy=[]), tmp_path)
    with pytest.raises(InputError, match=r"`about` is damaged: `test_accuracy`"):
        CheckpointRecord.read(path.with_suffix(".safetensors"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "not an idx file"),
        (bytes([0, 0, 8, 255]), "not an idx file"),
        (bytes([0, 0, 8, 3, 0, 0]), "cut off"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 9]) + b"12", "cut off"),
        (bytes([0, 0, 8, 4]) + b"\xff" * 16, "more than"),
        (b"\x1f\x8b" + b"no gzip", "cannot be read"),
    ],
)
def test_images_that_are_no_idx_file(content: bytes, named: str, tmp_path: Path) -> None:
    from deploynas.errors import InputError
    from deploynas.training.idx import read_idx

    (tmp_path / "images.idx").write_bytes(content)
    with pytest.raises(InputError, match=named):
        read_idx(tmp_path / "images.idx")


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked(tmp_path: Path) -> None:
    import gzip
    import tracemalloc

    from deploynas.errors import InputError
    from deploynas.training.idx import read_idx

    (tmp_path / "images.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(200 << 20)))
    tracemalloc.start()
    with pytest.raises(InputError, match="cut off, or longer"):
        read_idx(tmp_path / "images.gz")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
