"""The machine elsewhere that tests measure on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback import Board, NoServer, running_board


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    try:
        with running_board(tmp_path_factory.mktemp("board")) as board:
            yield board
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture
def board(sshd: Board, monkeypatch: pytest.MonkeyPatch) -> Board:
    """No pauses between attempts, and nothing remembered of an earlier test."""
    monkeypatch.setenv("PATH", sshd.path)
    monkeypatch.setattr("deploynas.latency.ssh_target.PAUSES_S", (0.0,) * 7)
    monkeypatch.setattr("deploynas.latency.ssh_target._met", {})
    return sshd
