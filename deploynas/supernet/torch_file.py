"""The tensors of a file that PyTorch saved, read without running anything that is in it.

Such files are pickles, which may call any function while they are loaded. `weights_only` builds tensors, numbers, text,
lists and dictionaries, and refuses everything else.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch
from torch import Tensor

from deploynas.errors import InputError


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """What `torch.save` wrote: tensors by name, alone or as `state_dict` of a larger dictionary."""
    document = _load(path)
    found = document.get("state_dict", document) if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found):
        raise InputError(f"{path}: holds no `state_dict`, a dictionary of tensors by name")
    wrong = next((name for name, value in found.items() if not isinstance(value, Tensor)), None)
    if wrong is not None:
        raise InputError(f"{path}: `{wrong}` in it is not a tensor", hint="expected the `state_dict` of a network")
    return found


def _load(path: Path) -> object:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unusual pickle: the error that follows says more
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # of every kind, `struct.error` and `AssertionError` too, by how the file is damaged
        asked_for = re.search(r"(?:GLOBAL |global: )(?:GLOBAL )?([\w.]+)", str(error))
        if asked_for:
            raise InputError(
                f"{path}: refused, since to load it `{asked_for.group(1)}` would have to be run; only tensors are read",
                hint="get the file from its authors, or save its `state_dict` alone where you trust it",
            ) from error
        raise InputError(
            f"{path}: not a complete file of `torch.save`",
            hint="it was cut off while it was copied, or is something else; download it again",
        ) from error
