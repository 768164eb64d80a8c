"""What a file takes, from made-up visits: as it was, undisturbed, and against another file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deploynas.device import Device
from deploynas.latency import file_timing
from deploynas.latency.entry import Entry
from deploynas.latency.file_timing import PROCESSES, VISITS, TimedFile, _undisturbed, time_files
from deploynas.latency.ratio import ratio_of
from deploynas.latency.speed import UNDISTURBED
from deploynas.latency.worker import Visit

RUNS = 10
REFERENCE_MS = 0.1
Machine = Callable[[float, np.random.Generator], tuple[float, float]]  # time on the clock, and of it waiting


def quiet(took: float, rng: np.random.Generator) -> tuple[float, float]:
    return took * (1 + 0.01 * rng.exponential()), 0.0


def often_slower(took: float, rng: np.random.Generator) -> tuple[float, float]:
    """Short inferences are often undisturbed; long ones, which last through many changes, never are."""
    share = 0.6 if took > 1 else float(rng.random() < 0.6)
    return quiet(took * (1 + 0.45 * share), rng)


def taken_away(took: float, rng: np.random.Generator) -> tuple[float, float]:
    """Other programs get the core in the middle of an inference, for as long as it takes again."""
    return 2 * took, took * (1 - 0.01 * rng.exponential())


@pytest.fixture
def timed(quick: Device, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[TimedFile]]:
    def on(machine: Machine, *files_ms: float) -> list[TimedFile]:
        truth = {f"file{i}": took for i, took in enumerate(files_ms)}

        def visit(target: object, space: object, entries: list[Entry], wanted: dict, worker: int, seed: int):
            rng = np.random.default_rng((worker, 7))
            for key in rng.permutation(np.repeat([entry.key for entry in entries], VISITS)):
                both = [machine(truth.get(str(key), REFERENCE_MS), rng) for _ in range(RUNS)]
                clock, waited = [one[0] for one in both], [one[1] for one in both]
                yield Visit(entry=str(key), worker=worker, samples_ms=clock, waited_ms=waited if any(waited) else [])

        monkeypatch.setattr(file_timing, "visit", visit)
        return time_files([Entry(key=key, kind="file", path="-") for key in truth], quick, runs=RUNS)

    return on


def test_on_a_quiet_machine_both_latencies_are_one(timed) -> None:
    (one,) = timed(quiet, 0.5)
    timing = one.timing
    assert timing.undisturbed.how == "own" and timing.stable
    assert timing.undisturbed.latency_ms == pytest.approx(0.5, rel=0.01)
    assert timing.clock.p50_ms == pytest.approx(0.5, rel=0.02) and timing.disturbance < 1.02
    assert timing.clock.inferences == PROCESSES * VISITS * RUNS and timing.clock.processes == PROCESSES


def test_what_is_sometimes_undisturbed_tells_its_latency_itself(timed) -> None:
    (one,) = timed(often_slower, 0.5)
    assert one.timing.undisturbed.how == "own"
    assert one.timing.undisturbed.latency_ms == pytest.approx(0.5, rel=0.02)
    assert one.timing.clock.p50_ms > 0.7


def test_what_never_is_undisturbed_is_told_by_the_references(timed) -> None:
    (one,) = timed(often_slower, 7.0)
    assert one.timing.undisturbed.how == "references"
    assert one.timing.undisturbed.latency_ms < 7.0 * 1.2 < 8.5 < one.timing.clock.p50_ms
    # at the most it is what the fastest of its own inferences took
    fastest = np.quantile(np.concatenate(one.measurement.computed_ms()), UNDISTURBED)
    low, high = one.timing.undisturbed.interval_ms
    assert low < one.timing.undisturbed.latency_ms < fastest <= high == pytest.approx(fastest, rel=0.02)


def test_the_interval_covers_both_ways_to_find_what_is_undisturbed() -> None:
    rng, process = np.random.default_rng(0), np.repeat(np.arange(PROCESSES), 20)
    samples = [1 + 0.02 * rng.random(10) for _ in process]
    slow = 1.05 + 0.1 * rng.random(len(process))  # what references say of every visit, and of the file nothing shows
    found, divided_by = _undisturbed(samples, slow, process)
    low, high = found.interval_ms
    assert found.how == "references" and low < found.latency_ms < 0.95 and 1 < high < 1.01
    assert (divided_by == slow).all()
    found, divided_by = _undisturbed(samples, np.linspace(1, 1.03, PROCESSES)[process], process)
    low, high = found.interval_ms
    assert found.how == "own" and low < 0.999 < found.latency_ms < high and (divided_by == 1).all()


def test_waiting_for_other_programs_is_on_the_clock_and_not_in_the_undisturbed_latency(timed) -> None:
    (one,) = timed(taken_away, 5.0)
    assert one.timing.undisturbed.latency_ms == pytest.approx(5.0, rel=0.03)
    assert one.timing.clock.p50_ms == pytest.approx(10.0) and one.timing.disturbance > 1.9


@pytest.mark.parametrize(
    ("other_ms", "verdict", "words"),
    [
        (0.45, "faster", "b is 1.1"),
        (0.6, "slower", "b is 1.20"),
        (0.5, "no difference", "b against a: no difference larger than"),
    ],
)
def test_two_files_are_compared_in_words(timed, other_ms: float, verdict: str, words: str) -> None:
    first, second = timed(quiet, 0.5, other_ms)
    ratio = ratio_of("a", "b", first, second)
    assert ratio.verdict == verdict and ratio.words().startswith(words)
    assert ratio.faster == pytest.approx(0.5 / other_ms, rel=0.01)


def test_where_nothing_is_taken_out_no_references_are_timed(quick: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set[str]()

    def visit(target: object, space: object, entries: list[Entry], wanted: dict, worker: int, seed: int):
        asked.update(wanted)
        for number in range(VISITS):
            yield Visit(entry="file", worker=worker, samples_ms=[1.0 + 0.001 * number] * RUNS)

    monkeypatch.setattr(file_timing, "visit", visit)
    device = quick.model_copy(update={"undisturbed": False})
    (one,) = time_files([Entry(key="file", kind="file", path="-")], device, runs=RUNS)
    assert asked == {"file"} and one.timing.undisturbed.how == "own"
    assert one.timing.clock.inferences == PROCESSES * VISITS * RUNS


def test_what_a_call_from_python_adds_is_told_where_every_process_measured_it() -> None:
    from deploynas.latency.file_timing import _typical
    from deploynas.timing import Loading

    told = {"load_ms": 3.0, "first_ms": 1.0, "peak_memory_bytes": 10, "model_memory_bytes": 5}
    newer = [Loading(**told, call_ms=ms) for ms in (0.03, 0.01, 0.02)]
    typical = _typical(newer)
    assert typical is not None and typical.call_ms == 0.02
    older = _typical([*newer, Loading(**told)])  # of an older target
    assert older is not None and older.call_ms is None
