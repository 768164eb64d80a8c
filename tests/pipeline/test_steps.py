"""Done means done from the same inputs: the one rule, on a step that only copies a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploynas.files import sha256_of
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import perform
from deploynas.progress import OnProgress


@dataclass
class Copy:
    run: RunFolder
    source: Path
    name: str = "copy"
    fails: bool = False
    worked: int = field(default=0)

    @property
    def target(self) -> Path:
        return self.run.path / "target"

    def inputs(self) -> dict[str, str]:
        return {"source": sha256_of(self.source)}

    def work(self, on_progress: OnProgress) -> None:
        if self.fails:
            raise KeyboardInterrupt
        self.worked += 1
        self.target.write_bytes(self.source.read_bytes())

    def outputs(self) -> list[Path]:
        return [self.target]


@pytest.fixture
def step(tmp_path: Path) -> Copy:
    (tmp_path / "source").write_text("one")
    return Copy(RunFolder(tmp_path), tmp_path / "source")


def test_a_step_is_done_once(step: Copy) -> None:
    assert [perform(step, step.run) for _ in range(3)] == [True, False, False]
    assert step.worked == 1


def test_other_inputs_and_forcing_do_it_again(step: Copy) -> None:
    perform(step, step.run)
    step.source.write_text("two")
    assert perform(step, step.run) and step.target.read_text() == "two"
    assert perform(step, step.run, force=True) and step.worked == 3


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("changed by hand")])
def test_an_output_that_is_gone_or_changed_is_made_again(step: Copy, damage) -> None:
    perform(step, step.run)
    damage(step.target)
    assert perform(step, step.run) and step.target.read_text() == "one"


def test_nothing_vouches_for_work_that_was_stopped(step: Copy) -> None:
    """Stopped while it was redone for other inputs, the step is not done for the former ones either."""
    perform(step, step.run)
    step.source.write_text("two")
    step.fails = True
    with pytest.raises(KeyboardInterrupt):
        perform(step, step.run)
    step.source.write_text("one")
    step.fails = False
    assert perform(step, step.run)
