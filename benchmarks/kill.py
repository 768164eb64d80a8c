"""Kill -9 a training run at random moments, twenty times, then let it finish: the weights of a quiet run?

    python benchmarks/kill.py [KILLS]

A small run (its own little space, embedded data) writes a checkpoint after every step. Every attempt is
killed after a random time; an attempt that gets to the end starts the run over, so that all kills hit a run
that is training.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPACE = """
name: tiny
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""
SETTINGS = [
    *("w_h.epochs=3", "w_h.batch=256", "w_star.epochs=3", "w_star.batch=256"),
    *("recalibration_images=1000", "report_networks=2", "checkpoint_every_s=0"),
]
FILES = ("supernet/w_h.safetensors", "supernet/w_star.safetensors")
RESULT = Path(__file__).with_name("results") / "kill.json"


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.yaml").write_text(SPACE)
        quiet, killed = folder / "quiet", folder / "killed"
        subprocess.run(_command(folder, quiet), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        moments: list[dict] = []
        while len(moments) < kills:
            moment = _kill_once(_command(folder, killed), killed, rng)
            if moment is None:
                shutil.rmtree(killed)  # it got to the end: start over
            else:
                moments.append(moment)
                print(f"kill {len(moments):2}: {moment['phase']} step {moment['step']}", flush=True)
        subprocess.run(_command(folder, killed), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        same = {file: _sha256(quiet / file) == _sha256(killed / file) for file in FILES}
    print("| file | equal to the uninterrupted run's |\n|---|---|")
    for file, equal in same.items():
        print(f"| {file} | {'yes, bit for bit' if equal else 'NO'} |")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"kills": moments, "equal": same}, indent=1) + "\n")
    sys.exit(0 if all(same.values()) else 1)


def _command(folder: Path, out: Path) -> list[str]:
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    return [
        sys.executable,
        "-m",
        "deploynas",
        "train",
        "--space",
        str(folder / "tiny.yaml"),
        "--out",
        str(out),
        *changes,
    ]


def _kill_once(command: list[str], out: Path, rng: random.Random) -> dict | None:
    """Start, wait until it trains, wait a random time, kill -9. None if it had finished before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = _position(out)
    while process.poll() is None and _position(out) == before:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 1.5))
    finished = process.poll() is not None
    process.kill()
    process.wait()
    return None if finished else _position(out) or {"phase": "before the first checkpoint", "step": 0}


def _position(out: Path) -> dict | None:
    try:
        state = json.loads((out / "supernet" / "state.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return {"phase": state["phase"], "step": state["step"]}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the network is tiny
    main()
