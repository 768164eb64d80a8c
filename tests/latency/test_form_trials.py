"""The device chooses the forms of operators: fairly compared, written down, and used for everything after."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from scipy import stats

import deploynas as dn
from deploynas.device import Device
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.form_choice import FormChoice
from deploynas.latency.form_trials import choose, signed_rank_interval, trial_entries
from deploynas.latency.table import LatencyTable
from deploynas.latency.worker import Entry, Visit, _order, build
from deploynas.quantization import Quantization
from deploynas.space import Space

VISITS = 8


@pytest.fixture(scope="module")
def entries(tiny: Space) -> list[Entry]:
    return trial_entries(tiny, "fp32", seed=0)


def visits_of(entries: list[Entry], speeds: dict[str, float], noise: float = 0.01) -> list[Visit]:
    """On a machine that is up to twice slower from moment to moment; `speeds`: over the default's latency, by form."""
    rng, made = np.random.default_rng(0), []
    slow = {entry.moment: rng.uniform(1, 2, VISITS) for entry in entries}
    for k in range(VISITS):
        for entry in entries:
            ratio = speeds.get(entry.key.split("/")[-1], 1.0)
            ms = 5.0 * slow[entry.moment][k] * ratio * np.exp(noise * rng.standard_normal())
            made.append(Visit(entry=entry.key, samples_ms=[ms, ms, 3 * ms]))
    return made


def test_only_forms_that_make_a_difference_are_tried(tiny: Space) -> None:
    tried = {precision: {e.forms for e in trial_entries(tiny, precision, 0)} for precision in ("fp32", "int8")}
    gate, hidden, dense, sigmoid = (forms for _, forms in DEFAULT_FORMS.alternatives())
    # in 8 bits the classifier is a matrix product either way, in fp32 there is nothing to saturate
    assert tried == {"fp32": {DEFAULT_FORMS, gate, hidden, dense}, "int8": {DEFAULT_FORMS, gate, hidden, sigmoid}}
    one_scale = Quantization(hard_activations="operator")
    assert {e.forms for e in trial_entries(tiny, "int8", 0, one_scale)} == {DEFAULT_FORMS, gate, hidden}
    assert {e.forms for e in trial_entries(tiny, "fp16", 0)} == tried["fp32"]
    plain = Space.load("ofa-proxyless")  # neither gates nor a hidden layer
    assert {e.forms for e in trial_entries(plain, "fp32", 0)} == {DEFAULT_FORMS, dense}
    assert trial_entries(plain, "int8", 0) == []


def test_each_network_is_visited_in_all_its_forms_in_one_moment(entries: list[Entry]) -> None:
    moments = {entry.key: entry.moment or entry.key for entry in entries} | {"other": "other"}
    order = _order({**{entry.key: 3 for entry in entries}, "other": 3}, moments, seed=0)
    assert sorted(order) == sorted([*(e.key for e in entries for _ in range(3)), *["other"] * 3])
    changes = sum(moments[a] != moments[b] for a, b in pairwise(order))
    alone = len({e.moment for e in entries}) + 1
    # 3 moments of each, and at most the other entry in the middle of each of its three
    assert changes <= 3 * alone - 1 + 3
    firsts = {order[i + 1] for i, (a, b) in enumerate(pairwise(order)) if moments[a] != moments[b]}
    assert any(not key.endswith("default") for key in firsts)  # turns are taken in random order


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({"gate=resize": 0.95, "dense=conv": 1.05}, OperatorForms(gate="resize")),
        ({"gate=resize": 0.95, "dense=conv": 0.96}, OperatorForms(gate="resize", dense="conv")),
        ({"dense=hidden-conv": 0.95, "dense=conv": 0.97}, OperatorForms(dense="hidden-conv")),  # the faster of two
        ({"gate=resize": 1.0, "dense=conv": 0.999}, DEFAULT_FORMS),  # surely faster, perhaps, but not worth it
    ],
)
def test_what_is_clearly_faster_is_kept(speeds: dict[str, float], chosen: OperatorForms, entries: list[Entry]) -> None:
    """A machine twice slower at times does not hide five per cent, since all forms meet it alike."""
    found = choose(entries, visits_of(entries, speeds))
    assert found.chosen == chosen
    for trial in found.trials:
        truth = speeds.get(f"{trial.operation}={trial.form}", 1.0)
        assert trial.interval is not None and trial.ratio == pytest.approx(truth, rel=0.01)
        assert trial.interval[0] < trial.ratio < trial.interval[1]
        assert trial.pairs == trial.networks * VISITS


def test_what_is_not_certain_stays_as_it_was(entries: list[Entry]) -> None:
    """Two per cent faster, in noise of fifty."""
    found = choose(entries, visits_of(entries, {"gate=resize": 0.98, "dense=conv": 0.98}, noise=0.5))
    assert found.chosen == DEFAULT_FORMS
    assert {trial.verdict for trial in found.trials} == {"not faster"}


def test_a_form_that_the_provider_cannot_run_is_left_out(entries: list[Entry]) -> None:
    made = [one for one in visits_of(entries, {"dense=conv": 0.9}) if not one.entry.endswith("gate=resize")]
    found = choose(entries, made)
    assert found.chosen == OperatorForms(dense="conv")
    assert [trial.verdict for trial in found.trials] == ["cannot run", "not faster", "faster"]
    assert all(entry.optional == (entry.forms != DEFAULT_FORMS) for entry in entries)


@pytest.mark.parametrize("count", [5, 6, 12, 40])
def test_the_interval_is_that_of_wilcoxons_test(count: int) -> None:
    """Inside it the test does not reject, outside it does; with five values nothing can be said."""
    values = np.random.default_rng(count).normal(0.1, 1.0, count)
    centre, interval = signed_rank_interval(values)
    if count == 5:
        assert interval is None
        return
    assert interval is not None and interval[0] <= centre <= interval[1]
    for end, inwards in zip(interval, (1e-9, -1e-9), strict=True):
        assert stats.wilcoxon(values - end - inwards, method="exact").pvalue > 0.05
        assert stats.wilcoxon(values - end + inwards, method="exact").pvalue <= 0.05


def test_a_table_is_made_of_the_chosen_forms(tiny: Space, quick: Device, monkeypatch, tmp_path: Path) -> None:
    """Whatever the clock says, the gate is decided: parts and networks are written with it, and the file says so."""
    from deploynas.latency import profile as module

    forms, written = OperatorForms(gate="resize"), []
    real = module.visit

    def visit(device, space, entries, *rest):
        written.extend(entry for entry in entries if not entry.moment)
        yield from real(device, space, entries, *rest)

    monkeypatch.setattr(module, "visit", visit)
    monkeypatch.setattr(module, "choose", lambda entries, visits: FormChoice(chosen=forms))
    table = dn.profile(quick, tiny)
    assert written and {entry.forms for entry in written} == {forms}
    gated = [entry for entry in written if "se" in entry.key]
    for entry in gated:
        model = onnx.load_model_from_string(build(entry, tiny, quick))
        assert "Resize" in {node.op_type for node in model.graph.node}
        assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"  # free, as it is shipped
    assert gated and table.forms == forms
    table.save(tmp_path / "table.json")
    assert LatencyTable.load(tmp_path / "table.json").forms == forms


def test_a_resumed_profile_does_not_measure_forms_again(tiny: Space, quick: Device, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    first = dn.profile(quick, tiny, journal=journal)
    lines = journal.read_text().splitlines()
    tried = [line for line in lines[1:] if json.loads(line)["entry"].startswith("form/")]
    assert tried == lines[1 : 1 + len(tried)] and tried  # before everything else
    journal.write_text("\n".join(lines[: len(tried) + 3]) + "\n")
    again = dn.profile(quick, tiny, journal=journal)
    assert first.evidence is not None and again.evidence is not None
    assert again.evidence.forms == first.evidence.forms
    found = [json.loads(line)["entry"] for line in journal.read_text().splitlines()[1:]]
    assert sum(entry.startswith("form/") for entry in found) == len(tried)


def test_a_table_of_an_earlier_version_has_the_default_forms() -> None:
    golden = Path(__file__).parent.parent / "golden" / "v1" / "latency-table.profiled.json"
    table = LatencyTable.load(golden)
    assert table.forms == DEFAULT_FORMS
    assert table.evidence is not None and table.evidence.forms.trials == []
