"""A rename that Windows refuses for a moment, and one that it refuses for good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deploynas import files
from deploynas.errors import InputError
from deploynas.export.bundle import MANIFEST, staged
from deploynas.files import write_bytes

SHARING_VIOLATION, ACCESS_DENIED = 32, 5
replace = Path.replace


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Have renames onto a name refused the first few times; returns the list of attempts."""
    monkeypatch.setattr(files, "PAUSES_S", (0.0,) * 5)

    def refuse(times: int, name: str, code: int | None = SHARING_VIOLATION) -> list[Path]:
        attempts: list[Path] = []

        def asked(source: Path, target: Path) -> Path:
            if target.name == name:
                attempts.append(source)
                if len(attempts) <= times:
                    error = PermissionError(13, "Permission denied")
                    if code is not None:
                        error.winerror = code  # type: ignore[attr-defined]
                    raise error
            return replace(source, target)

        monkeypatch.setattr(Path, "replace", asked)
        return attempts

    return refuse


@pytest.mark.parametrize("code", [SHARING_VIOLATION, ACCESS_DENIED])
def test_a_file_that_somebody_reads_for_a_moment_is_replaced(refusing: Callable, tmp_path: Path, code: int) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    attempts = refusing(3, "table.json", code)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and len(attempts) == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_stays_open_is_one_clear_error(refusing: Callable, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    attempts = refusing(1000, "table.json")
    with pytest.raises(InputError, match="cannot be replaced: another program has it") as raised:
        write_bytes(path, b"new")
    assert len(attempts) == 6 and raised.value.hint
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_missing_rights_are_not_waited_for(refusing: Callable, tmp_path: Path) -> None:
    attempts = refusing(1000, "table.json", None)
    with pytest.raises(PermissionError):
        write_bytes(tmp_path / "table.json", b"new")
    assert len(attempts) == 1 and not list(tmp_path.iterdir())


def test_a_bundle_that_cannot_be_put_in_place_leaves_the_earlier_one(refusing: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / MANIFEST).write_text("earlier")
    attempts = refusing(6, "bundle")  # all of one call; the earlier one's way back is open again
    with pytest.raises(InputError, match="cannot be replaced"), staged(folder) as stage:
        (stage / MANIFEST).write_text("later")
    assert len(attempts) == 7
    assert (folder / MANIFEST).read_text() == "earlier" and list(tmp_path.iterdir()) == [folder]


def test_a_bundle_is_put_in_place_whole(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    for text in ("earlier", "later"):
        with staged(folder) as stage:
            (stage / MANIFEST).write_text(text)
        assert (folder / MANIFEST).read_text() == text and list(tmp_path.iterdir()) == [folder]
