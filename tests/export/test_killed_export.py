"""An export that was killed: the earlier bundle is there again, and nothing half made stays beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploynas.export.bundle import MANIFEST, staged
from deploynas.one_writer import FolderInUse


def made(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / MANIFEST).write_text(text)


def test_killed_between_the_two_renames(tmp_path: Path) -> None:
    """The earlier bundle was aside, the new one not yet in place. It comes back even if the next export fails."""
    made(tmp_path / ".bundle.123.old", "earlier")
    made(tmp_path / ".bundle.123.new", "later")
    with pytest.raises(ZeroDivisionError), staged(tmp_path / "bundle"):
        _ = 1 / 0
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert (tmp_path / "bundle" / MANIFEST).read_text() == "earlier"


def test_killed_after_them(tmp_path: Path) -> None:
    made(tmp_path / "bundle", "later")
    made(tmp_path / ".bundle.123.old", "earlier")
    made(tmp_path / ".bundle.other.123.old", "of another bundle, `bundle.other`")
    with staged(tmp_path / "bundle") as stage:
        (stage / MANIFEST).write_text("latest")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bundle.other.123.old", "bundle"]
    assert (tmp_path / "bundle" / MANIFEST).read_text() == "latest"


def test_one_export_at_a_time(tmp_path: Path) -> None:
    """Of one bundle: its neighbours are others'. A second thread stands for a second command."""
    import threading

    refused = list[FolderInUse]()

    def second() -> None:
        try:
            with staged(tmp_path / "bundle"):
                pass
        except FolderInUse as error:
            refused.append(error)

    with staged(tmp_path / "bundle") as stage:
        (stage / MANIFEST).write_text("first")
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        with staged(tmp_path / "another") as other:
            (other / MANIFEST).write_text("another")
    assert len(refused) == 1 and sorted(path.name for path in tmp_path.iterdir()) == ["another", "bundle"]
