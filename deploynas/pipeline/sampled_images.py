"""Which images the passes of a folder were measured on, by content: passes on others must not be mixed with them.

The folder's name says which weights and which split; this file, what the images were when the first pass was made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from deploynas.errors import InputError
from deploynas.files import parse_json, write_json
from deploynas.training.data import Data

FILE = "images.json"


class SampledImagesFile(BaseModel):
    schema_: Literal["deploynas/sampled-images"] = Field(default="deploynas/sampled-images", alias="schema")
    schema_version: int = 1
    data: str
    content_hash: str


def require_same_images(folder: Path, data: Data) -> None:
    """Refuse images that have changed since; where nothing is said yet, say which they are."""
    path = folder / FILE
    if not path.exists():
        file = SampledImagesFile(data=data.describe().public().name, content_hash=data.content_hash)
        write_json(path, file.model_dump(by_alias=True))
    elif parse_json(path, SampledImagesFile).content_hash != data.content_hash:
        raise InputError(
            f"images of `{data.name}` have changed since the passes in {folder} were measured",
            hint="put them back, or delete that folder to measure again",
        )
