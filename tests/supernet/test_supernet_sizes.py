"""A supernet for several input sizes: every image at the size of its path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from deploynas.space import Space
from deploynas.supernet.extraction import extract
from deploynas.supernet.input_size import Resizing, at_one_size, for_any_size, resized
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths


@pytest.fixture(scope="module")
def supernet(sized: Space) -> Supernet:
    torch.manual_seed(0)
    return Supernet(sized).eval()


@torch.no_grad()
def test_each_image_takes_the_size_and_the_blocks_of_its_path(supernet: Supernet, sized: Space) -> None:
    images = torch.randn(30, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    rows = sized.decisions.draw(30, np.random.default_rng(2))
    together = supernet(images, as_paths(rows))
    for i, network in enumerate(sized.architectures(rows)):
        small = resized(images[i : i + 1], network.at_its_size.space)
        assert small.shape[2:] == (sized.sizes[network.size_index],) * 2
        alone = extract(supernet, network)
        torch.testing.assert_close(together[i : i + 1], alone(small), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(supernet(images[i : i + 1], network), alone(small), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(supernet(small, network), alone(small), rtol=1e-4, atol=1e-5)  # already resized


@torch.no_grad()
def test_without_paths_it_is_the_heaviest_network_at_the_largest_size(supernet: Supernet, sized: Space) -> None:
    images = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(supernet(images), supernet(images, sized.heaviest()))
    assert sized.heaviest().at_its_size.space.height == 28


def test_a_network_alone_resizes_only_where_there_is_a_choice(supernet: Supernet, sized: Space) -> None:
    network = extract(supernet, sized.smallest())
    wrapped = for_any_size(network, sized.smallest())
    assert isinstance(wrapped, Resizing) and at_one_size(wrapped) is network is at_one_size(network)
    assert for_any_size(network, sized.smallest().at_its_size) is network


def test_images_shrink_as_an_image_library_shrinks_them() -> None:
    """What is trained on is what `predict.py` feeds: within one grey level of pillow."""
    space = Space.load("fashion")
    from dataclasses import replace

    pixels = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    by_pillow = np.asarray(Image.fromarray(pixels).resize((20, 20), Image.Resampling.BILINEAR), dtype=float)
    ours = resized(torch.from_numpy(pixels)[None, None], replace(space, height=20, width=20))[0, 0]
    assert np.abs(ours.numpy().astype(float) - by_pillow).max() <= 1
