"""What checkpoints remember: files of before are read, and where data lie is found again from any folder."""

from __future__ import annotations

from pathlib import Path

from deploynas.space import Space
from deploynas.training.checkpoint_record import CheckpointRecord, place_beside

# as fine-tuning wrote it before records had types
BEFORE = {
    "data": {
        "name": "folder:/somewhere/images",
        "classes": ["cat", "dog"],
        "train_images": 80,
        "validation_images": 20,
        "test_images": 0,
        "split_hash": "0123456789abcdef",
        "mean": [0.5],
        "std": [0.25],
    },
    "recipe": {"seed": 3, "finetune": {"epochs": 2, "from_the_future": 1}, "from_the_future": 1},
    "teacher": {"name": "w_h", "sha256": "aa"},
    "from_scratch": False,
    "fingerprint": "x",
    "inherited_accuracy": 0.5,
    "validation_accuracy": 0.6,
    "test_accuracy": None,
    "lineage": {"search": {"path": "found.json", "sha256": "bb"}, "supernet": None, "teacher": None},
}


def test_a_record_of_before_is_read() -> None:
    record = CheckpointRecord.model_validate(BEFORE)
    assert record.data_text(Path("anywhere")) == "folder:/somewhere/images"
    assert record.data is not None and record.data.public().name == "folder"
    assert record.lineage.search is not None and record.teacher is not None
    recipe = record.recipe_for(Space.load("fashion"))
    assert (recipe.seed, recipe.finetune.epochs) == (3, 2)
    assert CheckpointRecord.model_validate(record.about()) == record


def test_data_are_found_again_relative_to_the_checkpoint(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "elsewhere").mkdir()
    run = tmp_path / "runs" / "x" / "supernet"
    place = place_beside(str(tmp_path / "images"), run)
    assert place == "../../../images"
    run.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    record = CheckpointRecord.model_validate({"data": {"name": "folder"}, "data_place": place})
    text = record.data_text(run)
    assert text is not None and Path(text.removeprefix("folder:")).resolve() == tmp_path / "images"
    assert place_beside("", run) is None
