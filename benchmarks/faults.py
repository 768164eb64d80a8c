"""Faults, one after the other, into every long command: does it resume to what it would have been, or say why not?

    python benchmarks/faults.py                          # everything, 10 kills a command
    python benchmarks/faults.py --kills 3 --command train --seed 7

Each command (a space, a device and a data set of its own, so small that it takes seconds) is run once without any
fault. Then it is killed at random moments in four ways and repeated until it ends; its disk is filled and its rights
are taken away at random moments; its worker is killed, its connection cut; a second command is started beside it; and
what it reads is changed between two attempts. After every fault no file under a final name may be half a file, nobody
may hold a lock, and an error is one paragraph with an exit code of ours. In the end the result must be that of the run
without faults, bit for bit where the step is deterministic, and nothing temporary may be left. A disk is a small tmpfs,
which takes root to mount, and rights are those of `nobody`; without root these two are left out, and said to be.
Results go to benchmarks/results/faults.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: the networks are tiny, and processes are forked
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from fault_commands import COMMANDS, DEVICE, Command, prepare
from fault_kinds import FAULTS, Bench, Finding

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from loopback import Board, NoServer, running_board

RESULT = Path(__file__).with_name("results") / "faults.json"


def main() -> None:
    asked = _asked()
    wanted = [command for command in COMMANDS if not asked.command or command.name in asked.command]
    _import_everything()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as name, _board(wanted) as board:
        folder = Path(name)
        folder.chmod(0o755)
        bench = Bench(folder, random.Random(asked.seed), asked.kills, {}, board)
        bench.quiet.mkdir()
        if board:
            (bench.quiet / "board.yaml").write_text(
                f"{DEVICE.replace('quick', 'board')}host: board\npython: {board.python}\n"
            )
        bench.seconds.update(prepare(bench.quiet, {command.name for command in wanted}))
        findings = [finding for command in wanted for finding in _all_faults(bench, command, asked.fault)]
    _print(findings, time.monotonic() - started)
    if not asked.command and not asked.fault:
        document = {
            "seed": asked.seed,
            "kills": asked.kills,
            "seconds": round(time.monotonic() - started),
            "findings": [f.record() for f in findings],
        }
        RESULT.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if any(finding.wrong for finding in findings) else 0)


def _import_everything() -> None:
    """Before processes are forked, so that none of them spends its time on it."""
    from importlib import import_module

    from deploynas.cli import COMMANDS as NAMES

    for name in (
        "torch",
        "timm",
        "onnx",
        "onnxruntime",
        "sklearn",
        "scipy.optimize",
        "scipy.stats",
        "deploynas.pipeline.run",
    ):
        import_module(name)
    for name in NAMES:
        import_module(f"deploynas.cli.{name}")
    timing = import_module("deploynas.latency.file_timing")  # nothing here depends on how long anything takes
    timing.PROCESSES, timing.VISITS = 2, 4
    for name in (
        "pipeline.prune",
        "pipeline.prune_transformer",
        "pipeline.export",
        "pipeline.search",
        "accuracy.indexed_fit",
    ):
        import_module(f"deploynas.{name}")


@contextmanager
def _board(wanted: list[Command]) -> Iterator[Board | None]:
    """Another machine: an `sshd` on the loopback, where one can be started."""
    if not any(command.name == "profile over ssh" for command in wanted):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="board-") as name:
        try:
            with running_board(Path(name)) as board:
                os.environ["PATH"] = board.path
                yield board
        except NoServer as error:
            print(f"profile over ssh is left out: {error}")
            wanted[:] = [command for command in wanted if command.name != "profile over ssh"]
            yield None


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", choices=[command.name for command in COMMANDS])
    parser.add_argument("--fault", action="append", choices=[kind.__name__ for kind in FAULTS], help="only these kinds")
    return parser.parse_args()


def _all_faults(bench: Bench, command: Command, kinds: list[str] | None) -> list[Finding]:
    findings = []
    for kind in FAULTS:
        if kinds and kind.__name__ not in kinds:
            continue
        finding = kind(bench, command)
        if finding is not None:
            findings.append(finding)
            print(finding.line(), flush=True)
            for said in dict.fromkeys(finding.said):
                print(f"    {said}", flush=True)
    return findings


def _print(findings: list[Finding], seconds: float) -> None:
    print(
        "\n| command | fault | injected | resumed to the same | one clear error first | wrong |"
        "\n|---|---|---:|---:|---:|---|"
    )
    for f in findings:
        wrong = "; ".join(f"{what} ({times})" if times > 1 else what for what, times in Counter(f.wrong).items())
        row = (f.command, f.fault, f.injected, f.same, f.errors, f.left_out or wrong or "nothing")
        print(f"| {' | '.join(map(str, row))} |")
    print(
        f"\n{sum(f.injected for f in findings)} faults in {seconds:.0f} s, "
        f"{sum(len(f.wrong) for f in findings)} findings"
    )


if __name__ == "__main__":
    main()
