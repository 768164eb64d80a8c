"""Data sets are read, split and checked before training, and a damaged image does not end it."""

from __future__ import annotations

import gzip
import json
import pickle
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from deploynas.errors import DeployNASError, InputError
from deploynas.space import Space
from deploynas.training.batches import Batches, BatchShare
from deploynas.training.data import load_data
from deploynas.training.recipe import Augmentation
from deploynas.training.sources import PixelImages, cifar10


def sized(tmp_path, channels=3, side=32, classes=10) -> Space:
    path = tmp_path / f"space{channels}{side}{classes}.yaml"
    path.write_text(
        f"""
name: sized
input: {{channels: {channels}, height: {side}, width: {side}}}
classes: {classes}
stem: {{out: 8, stride: 2}}
stages: [{{out: 8, stride: 1, activation: relu, depths: [1], ratios: [1], kernels: [3]}}]
head: {{features: 8}}
"""
    )
    return Space.load(path)


def test_the_embedded_set_is_balanced_and_its_parts_are_disjoint():
    data = load_data("fashion-mini", Space.load("fashion"))
    assert data.test is not None
    assert (len(data.train), len(data.validation), len(data.test)) == (8000, 4000, 5000)
    assert torch.bincount(data.train.images.labels).tolist() == [800] * 10
    assert torch.bincount(data.validation.images.labels).tolist() == [400] * 10
    assert torch.bincount(data.test.images.labels).tolist() == [500] * 10
    parts = [
        {image.numpy().tobytes() for image in part.images.pixels} for part in (data.train, data.validation, data.test)
    ]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)


def test_a_data_set_that_does_not_fit_the_space_is_refused_with_all_reasons(tmp_path):
    with pytest.raises(InputError) as error:
        load_data("fashion-mini", sized(tmp_path, classes=7))
    assert "10 classes, the space has 7" in error.value.message
    assert "28x28 with 1 channel, the space takes 32x32 with 3 channels" in error.value.message


@pytest.mark.parametrize("name", ["nothing", "cifar10", "folder:/nowhere", "fashion-mnist:/nowhere"])
def test_an_unknown_or_missing_data_set_is_an_input_error(name):
    with pytest.raises(InputError):
        load_data(name, Space.load("fashion"))


def write_idx(path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def test_fashion_mnist_is_split_the_same_way_every_time(tmp_path):
    rng = np.random.default_rng(0)
    for stem, n in (("train", 100), ("t10k", 20)):
        write_idx(tmp_path / f"{stem}-images-idx3-ubyte.gz", rng.integers(256, size=(n, 28, 28)))
        write_idx(tmp_path / f"{stem}-labels-idx1-ubyte.gz", np.arange(n) % 10)
    first, second = (load_data(f"fashion-mnist:{tmp_path}", Space.load("fashion")) for _ in range(2))
    assert (len(first.train), len(first.validation), len(first.test)) == (80, 20, 20)
    assert not set(first.train.rows.tolist()) & set(first.validation.rows.tolist())
    assert torch.bincount(first.validation.images.labels[first.validation.rows]).tolist() == [2] * 10
    assert first.describe() == second.describe()
    images = tmp_path / "train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:-40])
    with pytest.raises(InputError, match="train-images"):
        load_data(f"fashion-mnist:{tmp_path}", Space.load("fashion"))


def test_cifar10_reads_the_npm_package_and_the_python_batches_alike(tmp_path):
    rng = np.random.default_rng(0)
    sheets, batches = tmp_path / "npm" / "package", tmp_path / "py"
    sheets.mkdir(parents=True)
    batches.mkdir()
    everything, labels = [], []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        images = rng.integers(256, size=(4, 32, 32, 3), dtype=np.uint8)
        digits = rng.integers(10, size=4).tolist()
        Image.fromarray(images.reshape(4, 1024, 3)).save(sheets / f"{name}.png")
        planes = images.transpose(0, 3, 1, 2).reshape(4, 3072)
        (batches / name).write_bytes(pickle.dumps({b"data": planes, b"labels": digits}, protocol=2))
        everything.append(images)
        labels += digits
    (sheets / "train_lables.json").write_text(json.dumps(labels[:20]))
    (sheets / "test_lables.json").write_text(json.dumps(labels[20:]))
    for folder in (tmp_path / "npm", batches):
        source = cifar10(folder)
        assert torch.equal(source.train.pixels, torch.from_numpy(np.concatenate(everything[:5])).permute(0, 3, 1, 2))
        assert source.train.labels.tolist() + source.test.labels.tolist() == labels


def test_a_python_batch_that_would_run_code_is_refused(tmp_path):
    class Attack:
        def __reduce__(self):
            return (print, ("owned",))

    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(pickle.dumps(Attack()))
    with pytest.raises(InputError, match="refused to load"):
        cifar10(tmp_path)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(256, size=(20 + i, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    return tmp_path / "images"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_images_is_resized_to_the_space(folder, tmp_path, channels):
    space = sized(tmp_path, channels=channels, side=16, classes=2)
    batches = Batches(load_data(f"folder:{folder}", space), space, Augmentation(auto_augment="rand-m9"))
    images, labels = next(batches.train(8, 0, 1, seed=0, share=BatchShare()))
    assert images.shape == (8, channels, 16, 16)
    assert labels.shape == (8,)
    evaluated = list(batches.evaluation(batches.data.validation))
    assert sum(len(y) for _, y in evaluated) == 4


def test_a_corrupt_image_is_named_skipped_and_counted(folder, tmp_path):
    broken = folder / "cat" / "3.png"
    broken.write_bytes(broken.read_bytes()[:200])
    (folder / "dog" / "5.png").write_bytes(b"not an image")
    space = sized(tmp_path, side=16, classes=2)
    batches = Batches(load_data(f"folder:{folder}", space), space, Augmentation())
    parts = (batches.data.train, batches.data.validation)
    seen = sum(len(labels) for part in parts for _, labels in batches.evaluation(part, 4))
    assert seen == 18
    assert batches.skipped == {str(broken), str(folder / "dog" / "5.png")}


def test_a_batch_of_nothing_but_corrupt_images_stops(folder, tmp_path):
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    space = sized(tmp_path, side=16, classes=2)
    batches = Batches(load_data(f"folder:{folder}", space), space, Augmentation())
    with pytest.raises(DeployNASError, match="none of the 4 images"):
        next(batches.train(4, 0, 1, seed=0, share=BatchShare()))


@pytest.mark.parametrize("auto_augment", [None, "rand-m9-mstd0.5", "original"])
def test_a_step_depends_on_its_number_only(auto_augment):
    """The fifth batch is the same whether one starts at step 0 or at step 4: what resuming relies on."""
    space = Space.load("fashion")
    augmentation = Augmentation(crop_padding=2, random_erasing=0.5, auto_augment=auto_augment)
    batches = Batches(load_data("fashion-mini", space), space, augmentation)
    *_, (images, labels) = batches.train(16, 0, 5, seed=3, share=BatchShare())
    (resumed, resumed_labels), _ = batches.train(16, 4, 6, seed=3, share=BatchShare())
    assert torch.equal(images, resumed) and torch.equal(labels, resumed_labels)
    (other, _), *_ = batches.train(16, 4, 5, seed=4, share=BatchShare())
    assert not torch.equal(images, other)


@pytest.mark.parametrize("auto_augment", [None, "rand-m9-mstd0.5"])
def test_two_processes_see_together_what_one_sees_alone(auto_augment):
    space = Space.load("fashion")
    augmentation = Augmentation(crop_padding=2, auto_augment=auto_augment)
    batches = Batches(load_data("fashion-mini", space), space, augmentation)
    whole = next(batches.train(16, 7, 8, seed=0, share=BatchShare()))
    halves = [next(batches.train(16, 7, 8, seed=0, share=BatchShare(rank, 2))) for rank in range(2)]
    for i in range(2):
        assert torch.equal(whole[i], torch.cat([half[i] for half in halves]))


def test_an_epoch_is_a_permutation_and_epochs_differ():
    space = Space.load("fashion")
    data = load_data("fashion-mini", space)
    marked = PixelImages(torch.arange(64).view(-1, 1, 1, 1).expand(-1, 1, 28, 28).to(torch.uint8), torch.arange(64))
    data = type(data)(data.name, data.classes, _part(marked), data.validation, None, data.mean, data.std)
    batches = Batches(data, space, Augmentation(flip=0))
    labels = [y.tolist() for _, y in batches.train(16, 0, 8, seed=0, share=BatchShare())]
    first, second = ([y for batch in half for y in batch] for half in (labels[:4], labels[4:]))
    assert sorted(first) == sorted(second) == list(range(64))
    assert first != second


def _part(images: PixelImages):
    from deploynas.training.data import Subset

    return Subset(images, torch.arange(len(images)))
