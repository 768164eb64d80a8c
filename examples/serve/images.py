"""From bytes that a stranger sent to the network's input, or a refusal: nothing is decoded before its size is known.

What is allowed: PNG, JPEG, WebP, BMP and GIF (of an animation, the first image). What is looked at before a pixel is
decoded: the size that the header states, and the size after `predict.py` would have resized it, which for an image of
1 x 10,000,000 pixels is far larger than the image itself.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from network import ServedNetwork
from PIL import Image, UnidentifiedImageError
from refusals import Refusal

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")

warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # sizes are compared below, with a limit of our own


class ImageReader:
    def __init__(self, network: ServedNetwork, max_pixels: int) -> None:
        self._network, self._max_pixels = network, max_pixels
        Image.MAX_IMAGE_PIXELS = max_pixels  # for frames that turn out larger than the header said
        Image.init()  # all plug-ins now, not in the threads of the first requests

    def read(self, content: bytes) -> np.ndarray:
        """One row of the network's input."""
        _require_canvas(content, self._max_pixels)
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                _require_size(image.size, self._network.how, self._max_pixels)
                image.load()
                return self._network.predict.preprocess(image, self._network.how)[None]
        except Refusal:
            raise
        except Image.DecompressionBombError as error:
            raise _too_large(self._max_pixels) from error
        except UnidentifiedImageError as error:
            raise Refusal(415, f"not an image of a kind that is read here: {', '.join(FORMATS)}") from error
        except MemoryError as error:
            raise Refusal(413, "the image needs more memory than there is") from error
        except Exception as error:  # decoders answer hostile bytes with nearly any type of exception
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Refusal(400, f"the image cannot be decoded: {reason[:200]}") from error


def _require_size(size: tuple[int, int], how: dict[str, Any], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise _too_large(max_pixels, f"the image has {width} x {height} pixels; ")
    shorter = how["resize_shorter_side"]
    if shorter is None or width * height == 0:
        return
    longer = shorter * max(size) // min(size)
    if shorter * longer > max_pixels:
        raise Refusal(413, f"an image of {width} x {height} pixels is {shorter} x {longer} after resizing")


def _require_canvas(content: bytes, max_pixels: int) -> None:
    """Pillow lets the WebP library allocate a whole canvas when it opens a file, so its size is read here first."""
    if content[:4] == b"RIFF" and content[8:16] == b"WEBPVP8X" and len(content) >= 30:
        width, height = (1 + int.from_bytes(content[start : start + 3], "little") for start in (24, 27))
    elif content[:4] == b"RIFF" and content[8:16] == b"WEBPVP8L" and len(content) >= 25:
        packed = int.from_bytes(content[21:25], "little")
        width, height = 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    elif content[:4] == b"RIFF" and content[8:16] == b"WEBPVP8 " and len(content) >= 30:
        width, height = (int.from_bytes(content[start : start + 2], "little") & 0x3FFF for start in (26, 28))
    else:
        return
    if width * height > max_pixels:
        raise _too_large(max_pixels, f"the image has {width} x {height} pixels; ")


def _too_large(max_pixels: int, what: str = "") -> Refusal:
    return Refusal(413, f"{what}at most {max_pixels} are decoded here")
