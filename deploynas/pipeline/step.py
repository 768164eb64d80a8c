"""A step of a run, and the one rule of "already done".

A step reads files and settings and writes files. Its record, `steps/NAME.json`, holds the content hash of everything it
read, weights included, and the SHA-256 of everything it wrote. It is done if it would read the same again and what it
wrote is still there, unchanged. Otherwise it is done again, from where it was stopped if the step knows how.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, Field

from deploynas import __version__
from deploynas.files import now, parse_json, sha256_of, write_json
from deploynas.pipeline.run_folder import RunFolder
from deploynas.progress import OnProgress, silent

Inputs = dict[str, str]  # what is read, by name: the content hash of each


class Step(Protocol):
    @property
    def name(self) -> str: ...

    def inputs(self) -> Inputs: ...

    def work(self, on_progress: OnProgress) -> None: ...

    def outputs(self) -> Sequence[Path]:
        """The files that were written, once `work` has returned."""
        ...


class StepFile(BaseModel):
    schema_: Literal["deploynas/step"] = Field(default="deploynas/step", alias="schema")
    schema_version: int = 1
    name: str
    inputs: Inputs
    outputs: dict[str, str]  # path within the run: SHA-256
    deploynas: str = ""
    created: str = ""


def perform(step: Step, run: RunFolder, force: bool = False, on_progress: OnProgress = silent) -> bool:
    """Do the step unless it is done; whether there was anything to do."""
    inputs, record = step.inputs(), _record(step, run)
    if not force and record is not None and record.inputs == inputs and _intact(record, run):
        return False
    _path(step, run).unlink(missing_ok=True)  # from here on nobody vouches for what lies there
    step.work(on_progress)
    record_done(step, run, inputs)
    return True


def record_done(step: Step, run: RunFolder, inputs: Inputs) -> None:
    """Write down what was made from what."""
    record = StepFile(
        name=step.name,
        inputs=inputs,
        outputs={_within(run, output): sha256_of(output) for output in step.outputs()},
        deploynas=__version__,
        created=now(),
    )
    write_json(_path(step, run), record.model_dump(by_alias=True))


def changed_inputs(step: Step, run: RunFolder) -> list[str]:
    """The inputs that are others than when the step was done last; none if it never was."""
    record, inputs = _record(step, run), step.inputs()
    known = record.inputs if record else inputs
    return [name for name in inputs if known.get(name) != inputs[name]]


def _path(step: Step, run: RunFolder) -> Path:
    return run.steps / f"{step.name}.json"


def _record(step: Step, run: RunFolder) -> StepFile | None:
    path = _path(step, run)
    return parse_json(path, StepFile) if path.exists() else None


def _intact(record: StepFile, run: RunFolder) -> bool:
    written = {run.path / output: sha256 for output, sha256 in record.outputs.items()}
    return all(path.is_file() and sha256_of(path) == sha256 for path, sha256 in written.items())


def _within(run: RunFolder, output: Path) -> str:
    return output.relative_to(run.path).as_posix()
