"""Fuzzing of everything that is read: valid files, mutated by their structure, and grown where they reach new lines.

    python benchmarks/fuzz.py [--cases 5000] [--seed 0] [--reader table ...] [--failures FOLDER]

Each case is read by the functions that the commands read it with, and used as they use it. It must end well or in one
paragraph with exit code 2, within 10 s of processor time and 1 GiB, with nothing written outside its folder, no
process started and no connection made. Every reader runs in a process of its own, so that one that dies is a failure of
its case and not the end. Results: benchmarks/results/fuzz.json; inputs that failed: a folder of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
sys.dont_write_bytecode = True  # of what is imported late, which would be files outside

from fuzzing.readers import READERS, Reader  # noqa: E402
from fuzzing.valid_files import make  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "fuzz.json"
SILENT_S = 240.0  # a process that says nothing for so long is stuck where no alarm reaches
MOST_SEEDS = 400
TRACED = 0.25  # share of cases whose lines are recorded, which makes them several times slower
USUAL = 0.8  # share of cases that begin with a valid file, so that they get past its first lines
SMALLER_TRIES = 60


@dataclass
class Tally:
    """What became of the cases of one reader."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    lines: int = 0  # of ours that were reached
    seeds: int = 0
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)  # by what happened and where
    examples: dict[str, str] = field(default_factory=dict)  # the file that shows it


def fuzz_one(name: str, first: int, cases: int, seed: int, made: Path, folder: Path, failures: Path) -> None:
    """In a process of its own: a line of JSON for every case that matters, and one for every hundred."""
    from fuzzing.watched import Ending, Watch

    reader, out = READERS[name], folder / "out"
    out.mkdir(exist_ok=True)
    os.chdir(folder)
    watch = Watch(folder)
    corpus = reader.contents(made)
    tally = Tally()

    def attempt(suffix: str, content: bytes, trace: bool = reader.trace, patience: float = 1.0) -> Ending:
        path = folder / f"case{suffix}"
        path.write_bytes(content)
        return watch.run(lambda: reader.read(path, out, made), trace, patience)

    valid = list(corpus)
    for suffix, content in valid:  # imports happen here, which touch files of theirs; and a valid file must be valid
        ending = attempt(suffix, content, trace=False, patience=5.0)
        if ending.how not in ("accepted", "touched") and (
            ending.how != "refused" or reader.form in ("json", "yaml", "csv")
        ):
            print(json.dumps({"invalid seed": ending.words[:500], "how": ending.how}), flush=True)
    for suffix, content in valid:
        attempt(suffix, content)  # whose lines are known then
    watch.limit_memory()
    before = _outside(folder)
    for number in range(first, first + cases):
        rng = random.Random(f"{seed}/{name}/{number}")
        suffix, content = rng.choice(valid if rng.random() < USUAL else corpus)
        changed = reader.mutated(content, [other for _, other in rng.choices(corpus, k=2)], rng)
        print(json.dumps({"case": number}), flush=True)
        ending = attempt(suffix, changed, reader.trace and rng.random() < TRACED)
        tally.cases += 1
        if ending.failed:
            key = f"{ending.how}: {ending.words}"
            tally.failures[key] = tally.failures.get(key, 0) + 1
            if key not in tally.examples:
                small = _smaller(reader, suffix, changed, content, ending, attempt)
                tally.examples[key] = _stored(failures, name, len(tally.examples) + 100 * first, suffix, small)
        else:
            setattr(tally, ending.how, getattr(tally, ending.how) + 1)
            if ending.new_lines and reader.trace and len(corpus) < MOST_SEEDS and len(changed) < 200_000:
                corpus.append((suffix, changed))
                if ending.how == "accepted":
                    valid.append((suffix, changed))
        if number % 500 == 499 and (odd := _outside(folder) - before):
            tally.failures[f"touched: {sorted(odd)[:3]}"] = 1
            before |= odd
        if tally.cases % 100 == 0 or number == first + cases - 1:
            tally.lines, tally.seeds = len(watch.lines), len(corpus)
            print(json.dumps({"tally": asdict(tally)}), flush=True)


def _outside(folder: Path) -> set[str]:
    """Everything beside the folder of the cases, with its time."""
    found = (path for path in folder.parent.rglob("*") if not path.is_relative_to(folder))
    return {f"{path} {path.lstat().st_mtime_ns}" for path in found}


def _smaller(reader: Reader, suffix: str, changed: bytes, origin: bytes, ending, attempt) -> bytes:
    """With as much as possible of what it was before, or less of it, as long as it fails in the same place."""
    best, step = changed, max(1, len(changed) // 2)
    tries = 0 if ending.how in ("hang", "memory") else SMALLER_TRIES
    while step and tries:
        at = 0
        while at < len(best) and tries:
            shorter = best[:at] + best[at + step :]
            tries -= 1
            again = attempt(suffix, shorter)
            if (again.how, again.words) == (ending.how, ending.words):
                best = shorter
            else:
                at += step
        step //= 2
    return best


def _stored(folder: Path, name: str, number: int, suffix: str, content: bytes) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{number}{suffix}"
    path.write_bytes(content)
    return path.name


def fuzz(name: str, cases: int, seed: int, made: Path, work: Path, failures: Path) -> Tally:
    """All cases of a reader; its process is started again behind a case that killed it."""
    total, done, start = Tally(), 0, time.monotonic()
    while done < cases:
        folder = Path(tempfile.mkdtemp(dir=work, prefix=f"{name}-")) / "inside"
        folder.mkdir()
        said, case, ended = _child(name, done, cases - done, seed, made, folder, failures)
        _add(total, said)
        if ended is None:
            break
        # what the last tally does not know of died with the process
        total.cases += max(0, case - done + 1 - said.cases)
        key = f"died: {ended}"
        total.failures[key] = total.failures.get(key, 0) + 1
        inputs = sorted(folder.glob("case*"))
        if key not in total.examples and inputs:
            content = inputs[0].read_bytes()
            total.examples[key] = _stored(failures, name, 90_000 + case, inputs[0].suffix, content)
        done = case + 1
    total.seconds = round(time.monotonic() - start, 1)
    return total


def _child(name: str, first: int, cases: int, seed: int, made: Path, folder: Path, failures: Path):
    """The last tally, the last case that was begun, and how the process ended if not well."""
    arguments = [name, str(first), str(cases), str(seed), str(made), str(folder), str(failures.absolute())]
    homes = {"HOME": str(folder.parent), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with (folder.parent / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", *arguments],
            stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **homes}, bufsize=0,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        said, case, heard, rest = Tally(), first - 1, time.monotonic(), b""
        while True:
            text = process.stdout.read()
            ended = not text and process.poll() is not None
            if text:
                heard = time.monotonic()
                *lines, rest = (rest + text).split(b"\n")
                for line in lines:
                    told = json.loads(line) if line.startswith(b"{") else {}
                    case = told.get("case", case)
                    said = Tally(**told["tally"]) if "tally" in told else said
                    if "invalid seed" in told:
                        print(f"{name}: a valid file is not: {told}", file=sys.stderr)
            if ended:
                break
            if time.monotonic() - heard > SILENT_S:
                process.kill()
                process.wait()
                return said, case, "hang: no alarm reached it"
            time.sleep(0.01 if text else 0.05)
    if process.returncode == 0:
        return said, case, None
    if case < first:
        raise SystemExit(f"{name} does not start:\n{(folder.parent / 'stderr').read_text()[-2000:]}")
    return said, case, f"exit code {process.returncode}"


def _add(total: Tally, said: Tally) -> None:
    total.cases, total.accepted, total.refused = (
        total.cases + said.cases, total.accepted + said.accepted, total.refused + said.refused,
    )  # fmt: skip
    total.lines, total.seeds = max(total.lines, said.lines), max(total.seeds, said.seeds)
    total.failures = dict(Counter(total.failures) + Counter(said.failures))
    total.examples = {**said.examples, **total.examples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000, help="of each reader (default 5000: 100,000 in all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", choices=READERS, help="only this one; may be repeated")
    parser.add_argument(
        "--failures", type=Path, default=Path("fuzz-failures"), help="where inputs that failed are kept"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the results are written")
    options = parser.parse_args()
    found: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        made = Path(place) / "made"
        made.mkdir()
        make(made)
        print(f"{'reader':16}{'cases':>8}{'accepted':>10}{'refused':>9}{'failed':>8}{'lines':>7}{'seeds':>7}{'s':>8}")
        for name in options.reader or READERS:
            one = found[name] = fuzz(name, options.cases, options.seed, made, Path(place), options.failures)
            failed = sum(one.failures.values())
            print(
                f"{name:16}{one.cases:8}{one.accepted:10}{one.refused:9}{failed:8}{one.lines:7}{one.seeds:7}"
                f"{one.seconds:8.0f}",
                flush=True,
            )
            for key, count in sorted(one.failures.items(), key=lambda item: -item[1]):
                print(f"  {count} × {key!r} {one.examples.get(key, '')}", flush=True)
    document = {
        "cases": sum(one.cases for one in found.values()),
        "failed": sum(sum(one.failures.values()) for one in found.values()),
        "seed": options.seed,
        "python": sys.version.split()[0],
        "readers": {name: asdict(one) for name, one in found.items()},
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{document['cases']:,} cases, {document['failed']} failed; {options.json.name}")
    sys.exit(3 if document["failed"] else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        name, first, cases, seed, *paths = sys.argv[2:]
        fuzz_one(name, int(first), int(cases), int(seed), *map(Path, paths))
    else:
        main()
