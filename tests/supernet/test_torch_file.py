"""A file of `torch.save` that is damaged anywhere is refused, whatever PyTorch's reader makes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from deploynas.errors import InputError
from deploynas.supernet.torch_file import read_state_dict


@pytest.mark.parametrize("zipped", [True, False])
def test_damage_in_every_place_is_refused_or_harmless(zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"state_dict": {"a": torch.zeros(3), "b": torch.ones(2)}}, path, _use_new_zipfile_serialization=zipped)
    whole, rng, refused = path.read_bytes(), random.Random(0), 0
    for at in range(0, len(whole), max(1, len(whole) // 300)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged if at % 2 else damaged[:at])
        try:
            assert set(read_state_dict(path)) <= {"a", "b"} or at % 2
        except InputError:
            refused += 1
    assert refused > 100
