"""Training resumes bit for bit, survives kills, stops at a NaN, and is the same on two processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from quick_settings import SETTINGS
from torch import nn

from deploynas.errors import DeployNASError, InputError
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training import loop
from deploynas.training.batches import Batches, BatchShare
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import load_data
from deploynas.training.distribution import Processes
from deploynas.training.evaluation import accuracy
from deploynas.training.metrics import read
from deploynas.training.objectives import OneShotPaths, Plain, distilled_loss
from deploynas.training.oneshot import train_supernet
from deploynas.training.recipe import Augmentation, Distillation, OneShotSchedule, Schedule
from deploynas.training.resumable import stop_requests
from deploynas.training.state import read_state

ROOT = Path(__file__).parents[2]


def weights(folder: Path, name: str = "w_star") -> bytes:
    return (folder / f"{name}.safetensors").read_bytes()


def command(space_file: Path, out: Path, *more: str) -> list[str]:
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    return [
        "-m",
        "deploynas",
        "train",
        "--space",
        str(space_file),
        "--out",
        str(out),
        "--json",
        *changes,
        *more,
    ]


def environment(threads: int = 1) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    """One uninterrupted run that the others are compared with."""
    from tiny_spaces import MINI

    folder = tmp_path_factory.mktemp("reference")
    (folder / "tiny.yaml").write_text(MINI)
    subprocess.run([sys.executable, *command(folder / "tiny.yaml", folder / "run")], env=environment(), check=True)
    return folder / "run" / "supernet"


def test_a_run_leaves_checkpoints_metrics_and_no_state(reference):
    w_h, w_star = (load_checkpoint(reference / f"{name}.safetensors") for name in ("w_h", "w_star"))
    assert isinstance(w_star.model, Supernet)
    heaviest, one_shot = CheckpointRecord.of(w_h), CheckpointRecord.of(w_star)
    assert (heaviest.role, one_shot.role) == ("w_h", "w_star")
    # the figures are those of the weights in the files, measured again
    batches = Batches(load_data("fashion-mini", w_h.space), w_h.space, Augmentation())
    validation, rng = batches.data.validation, np.random.default_rng(0)
    assert accuracy(w_h.model, batches, validation) == heaviest.validation_accuracy
    again = [accuracy(w_star.model, batches, validation, w_star.space.sample(rng)) for _ in range(2)]
    assert again == one_shot.accuracies and one_shot.subnetworks.networks == 2
    assert one_shot.subnetworks.mean == pytest.approx(sum(again) / 2)
    records = read(reference / "metrics.jsonl")
    epochs = [r for r in records if "train_loss" in r]
    assert [(r["phase"], r["step"]) for r in epochs] == [("w_h", 16), ("w_star", 16)]
    assert not list(reference.glob("state*"))


def test_seeds_make_runs_repeat(reference, space, recipe, tmp_path):
    train_supernet(space, "fashion-mini", tmp_path / "same", recipe)
    assert weights(tmp_path / "same") == weights(reference)
    train_supernet(space, "fashion-mini", tmp_path / "other", recipe.changed(["seed=1"]))
    assert weights(tmp_path / "other") != weights(reference)


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("step", [3, 16, 21])
def test_a_run_that_dies_after_any_step_resumes_to_the_same_bits(reference, space, recipe, tmp_path, step):
    recipe = recipe.changed(["checkpoint_every_s=0"])
    seen = 0

    def die(fraction: float, what: str) -> None:
        nonlocal seen
        seen += "epoch" in what
        if seen == step:
            raise _Killed

    with pytest.raises(_Killed):
        train_supernet(space, "fashion-mini", tmp_path, recipe, on_progress=die)
    result = train_supernet(space, "fashion-mini", tmp_path, recipe)
    assert weights(tmp_path) == weights(reference)
    assert not result.resumed
    lines = read(tmp_path / "metrics.jsonl")
    assert [(r["phase"], r["step"]) for r in lines] == [
        (r["phase"], r["step"]) for r in read(reference / "metrics.jsonl")
    ]


def test_kill_9_at_random_moments(reference, space_file, tmp_path):
    """Two kills here; benchmarks/faults.py does many, of every command."""
    rng = random.Random(0)
    run = [sys.executable, *command(space_file, tmp_path / "run", "--set", "checkpoint_every_s=0")]
    for _ in range(2):
        process = subprocess.Popen(run, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (tmp_path / "run" / "supernet" / "state.json").exists():
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 1))
        process.kill()
        process.wait()
    subprocess.run(run, env=environment(), check=True, stdout=subprocess.DEVNULL)
    assert weights(tmp_path / "run" / "supernet") == weights(reference)


def test_ctrl_c_saves_the_step_in_hand(reference, space_file, tmp_path):
    run = [sys.executable, *command(space_file, tmp_path / "run", "--set", "checkpoint_every_s=1000")]
    process = subprocess.Popen(run, env=environment(), stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "supernet" / "metrics.jsonl"
    while process.poll() is None and not metrics.exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert read_state(tmp_path / "run" / "supernet")[0].step >= 10
    subprocess.run(run, env=environment(), check=True, stdout=subprocess.DEVNULL)
    assert weights(tmp_path / "run" / "supernet") == weights(reference)


def test_a_finished_run_is_reported_and_other_settings_are_refused(space, recipe, reference):
    before = weights(reference)
    result = train_supernet(space, "fashion-mini", reference, recipe)
    assert result.resumed and weights(reference) == before
    with pytest.raises(InputError, match="other settings"):
        train_supernet(space, "fashion-mini", reference, recipe.changed(["w_h.lr=0.01"]))


def test_a_nan_loss_stops_with_the_last_good_checkpoint_named(space, recipe, tmp_path, monkeypatch):
    class Poisoned(Plain):
        def __call__(self, model: nn.Module, images: torch.Tensor, labels: torch.Tensor, step: int):
            loss, logits = super().__call__(model, images, labels, step)
            return (loss * float("nan") if step == 5 else loss), logits

    monkeypatch.setattr("deploynas.training.oneshot.Plain", Poisoned)
    with pytest.raises(DeployNASError) as error:
        train_supernet(space, "fashion-mini", tmp_path, recipe.changed(["checkpoint_every_s=0"]))
    assert "became nan at step 6" in error.value.message
    assert "state-w_h-5.safetensors, step 5" in error.value.message
    assert (tmp_path / "state-w_h-5.safetensors").exists()


def test_weights_that_are_not_finite_are_never_saved(space, recipe, tmp_path):
    from deploynas.training.state import Trainee, save_state

    model = Supernet(space)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    trainee = Trainee(model, None, optimizer, torch.amp.GradScaler(enabled=False))
    assert save_state(tmp_path, "w_h", "x", 1, [0, 0, 0], trainee)
    with torch.no_grad():
        model.classifier.weight[0, 0] = float("inf")
    assert not save_state(tmp_path, "w_h", "x", 2, [0, 0, 0], trainee)
    assert read_state(tmp_path)[0].step == 1


def test_any_timm_optimizer_resumes(space, recipe, tmp_path):
    """AdamW keeps a step count and two moments; all come back."""
    recipe = recipe.changed(["w_h.optimizer=adamw", "w_h.lr=0.001", "checkpoint_every_s=0"])
    steps = 0

    def die(fraction: float, what: str) -> None:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise _Killed

    with pytest.raises(_Killed):
        train_supernet(space, "fashion-mini", tmp_path / "a", recipe, on_progress=die)
    for name in ("a", "b"):
        train_supernet(space, "fashion-mini", tmp_path / name, recipe)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_two_processes_have_the_loss_curve_of_one(reference, space_file, tmp_path):
    """The same images, augmentations and paths; only batch statistics are of half the batch each."""
    run = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29511"]
    subprocess.run(
        [sys.executable, *run, *command(space_file, tmp_path / "run")],
        env=environment(),
        check=True,
        capture_output=True,
    )
    alone, together = (
        [r["train_loss"] for r in read(folder / "metrics.jsonl") if "train_loss" in r]
        for folder in (reference, tmp_path / "run" / "supernet")
    )
    assert together == pytest.approx(alone, rel=0.02)
    assert load_checkpoint(tmp_path / "run" / "supernet" / "w_star.safetensors").about["processes"] == 2


def test_a_batch_that_processes_cannot_share_is_refused():
    with pytest.raises(InputError, match="cannot share"):
        Processes(0, 3, torch.device("cpu")).require_batch(64, "w_h")


def test_distillation_is_the_mean_of_label_and_teacher():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    images = torch.zeros(6, 1)
    plain = distilled_loss(logits, images, labels, 0.1, None, None)
    own = distilled_loss(logits, images, labels, 0.1, lambda x: logits, Distillation(weight=0.3, temperature=2))
    torch.testing.assert_close(own, 0.7 * plain)  # a teacher of the same opinion adds nothing
    teacher = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    taught = distilled_loss(logits, images, labels, 0.1, lambda x: teacher, Distillation(weight=1, temperature=2))
    p, q = (teacher / 2).softmax(1), (logits / 2).softmax(1)
    torch.testing.assert_close(taught, 4 * (p * (p / q).log()).sum(1).mean())


def test_polite_kills_are_only_noted_while_training():
    before = signal.getsignal(signal.SIGTERM)
    with stop_requests() as requested:
        assert not requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert requested()
    assert signal.getsignal(signal.SIGTERM) is before


def test_json_on_stdout_is_one_document(space_file, reference):
    done = subprocess.run(
        [sys.executable, *command(space_file, reference.parent)],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    document = json.loads(done.stdout)
    assert set(document) >= {"w_h_accuracy", "subnetworks", "folder"}
    assert "next: deploynas estimate" in done.stderr


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_every_step_is_taken_in_training_mode(space, tmp_path, ema_decay):
    """Validation after each epoch puts the network into evaluation mode; the next epoch must not begin in it."""
    modes = []

    def objective(model, images, labels, step):
        modes.append(model.training)
        return Plain(0.1)(model, images, labels, step)

    batches = Batches(load_data("fashion-mini", space), space, Augmentation())
    schedule = Schedule(epochs=3, batch=4000, lr=0.01, ema_decay=ema_decay)
    lesson = loop.Lesson(objective, batches, schedule, validate=lambda model: float(not model.training))
    machine = loop.Machine(Processes(0, 1, torch.device("cpu")))
    trained = loop.fit(Supernet(space), lesson, loop.Phase(tmp_path, "w_h", "x", 0), machine)
    assert modes == [True] * 6 and not trained.training
    validated = [r["validation_accuracy"] for r in read(tmp_path / "metrics.jsonl") if "validation_accuracy" in r]
    assert validated == [1.0] * 3


def test_kernel_matrices_are_trained_with_everything_else(space, tmp_path):
    """A supernet whose smaller kernels are made by matrices, as imported ones are, learns along random paths too."""
    batches = Batches(load_data("fashion-mini", space), space, Augmentation())
    schedule = OneShotSchedule(epochs=1, batch=2000, lr=0.01, ema_decay=0)
    objective = OneShotPaths(space, schedule, 0, BatchShare())
    supernet = Supernet(space, "matrices")
    before = {name: value.clone() for name, value in supernet.named_parameters()}
    lesson = loop.Lesson(objective, batches, schedule, validate=lambda model: 0.0)
    machine = loop.Machine(Processes(0, 1, torch.device("cpu")), some_unused=True)
    trained = loop.fit(supernet, lesson, loop.Phase(tmp_path, "w_star", "x", 0), machine)
    after = dict(trained.named_parameters())
    matrices = [name for name in before if "matrices" in name]
    assert len(matrices) == 2  # 5 to 3, in the two blocks of the first stage
    assert all(not torch.equal(after[name], before[name]) for name in matrices)
    trained.save(tmp_path / "w.safetensors")
    again = Supernet.load(tmp_path / "w.safetensors")
    assert torch.equal(again.state_dict()[matrices[0]], after[matrices[0]])
