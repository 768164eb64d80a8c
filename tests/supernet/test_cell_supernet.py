"""The supernet of a cell space: paths per image, networks cut out of it, and the graphs that ship."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tiny_spaces import CELLS, RAGGED_CELLS
from torch import nn

from deploynas import graph
from deploynas.errors import InputError
from deploynas.export.fold import folded_weights
from deploynas.space import Architecture, CellSpace, Space
from deploynas.supernet.batch_norm import recalibrate
from deploynas.supernet.checkpoint import load_checkpoint, save_network
from deploynas.supernet.elastic import ElasticNorm
from deploynas.supernet.extraction import extract, insert, network_alone
from deploynas.supernet.network import Supernet
from deploynas.supernet.new_classes import for_classes
from deploynas.supernet.paths import as_paths


def lived(model: nn.Module, seed: int = 0) -> nn.Module:
    """As after training: no weight and no statistic is at its start."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (ElasticNorm, nn.BatchNorm2d)):
            for value in (module.weight.data, module.running_var):
                value.uniform_(0.5, 1.5, generator=generator)
            for value in (module.bias.data, module.running_mean):
                value.normal_(0, 0.3, generator=generator)
    return model.eval()


@pytest.fixture(scope="module", params=[CELLS, RAGGED_CELLS], ids=["cells", "ragged"])
def space(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CellSpace:
    path = tmp_path_factory.mktemp("cells") / "cells.yaml"
    path.write_text(request.param)
    found = Space.load(path)
    assert isinstance(found, CellSpace)
    return found


@pytest.fixture
def supernet(space: CellSpace) -> Supernet:
    torch.manual_seed(0)
    return lived(Supernet(space))  # type: ignore[return-value]


def images(space: Space, count: int) -> torch.Tensor:
    return torch.randn(count, space.in_channels, space.height, space.width, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_one_hot_weights_compute_the_network(space: CellSpace, supernet: Supernet) -> None:
    x, rows = images(space, 3), space.decisions.draw(6, np.random.default_rng(0))
    for one_hot, architecture in zip(space.decisions.one_hot(rows), space.architectures(rows), strict=True):
        mixed = supernet.mixed(x, torch.from_numpy(one_hot).float())
        torch.testing.assert_close(mixed, supernet(x, architecture), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_every_image_takes_its_own_path(space: CellSpace, supernet: Supernet) -> None:
    """All networks at once, one image for each, against each network by itself."""
    networks = list(space.enumerate())
    x = images(space, len(networks))
    together = supernet(x, as_paths(space.rows(networks)))
    alone = torch.cat([supernet(x[i : i + 1], network) for i, network in enumerate(networks)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(supernet(x[:2]), supernet(x[:2], space.heaviest()))


@torch.no_grad()
def test_a_network_cut_out_and_its_graph_compute_what_the_supernet_does(space: CellSpace, supernet: Supernet) -> None:
    x = images(space, 2)
    for network in list(space.enumerate())[::3]:
        wanted = supernet(x, network)
        model = extract(supernet, network)
        torch.testing.assert_close(model(x), wanted, atol=1e-5, rtol=1e-4)
        parts = space.parts(network)
        weights = folded_weights(model, parts)
        assert {name: value.shape for name, value in weights.items()} == graph.weight_shapes(space, network)
        content = graph.network(space, network, weights, batch=None).SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        found = session.run(None, {"input": x.numpy()})[0]
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_network_is_put_back_where_it_came_from(space: CellSpace, supernet: Supernet) -> None:
    network, x = space.heaviest(), images(space, 3)
    torch.manual_seed(5)
    model = lived(network_alone(network), seed=5)
    insert(supernet, network, model)
    torch.testing.assert_close(supernet(x, network), model(x), atol=1e-5, rtol=1e-4)
    with pytest.raises(InputError, match="not this architecture"):
        insert(supernet, space.smallest(), model)


def test_weights_of_another_architecture_are_refused(space: CellSpace) -> None:
    with pytest.raises(InputError, match="not a network of these parts"):
        folded_weights(network_alone(space.smallest()), space.parts(space.heaviest()))


def test_statistics_are_measured_again_path_by_path(space: CellSpace, supernet: Supernet) -> None:
    """Of one network's path, they are those of the network by itself."""
    network, batches = space.heaviest(), [images(space, 8), images(space, 8) + 1]
    model = extract(supernet, network)
    recalibrate(supernet, [(x, network) for x in batches])
    recalibrate(model, [(x, None) for x in batches])
    torch.testing.assert_close(supernet(batches[0], network), model(batches[0]), atol=1e-5, rtol=1e-4)


def test_every_weight_that_a_path_uses_learns(space: CellSpace) -> None:
    supernet = Supernet(space).train()
    networks = list(space.enumerate())
    x = images(space, len(networks))
    supernet(x, as_paths(space.rows(networks))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in supernet.parameters())
    supernet.zero_grad()
    supernet(x[:4], space.smallest()).square().sum().backward()
    used = {name for name, parameter in supernet.named_parameters() if parameter.grad is not None}
    assert not any(".cells." in name for name in used) or space.name == "ragged-cells"


def test_checkpoints_of_both_kinds_come_back(space: CellSpace, supernet: Supernet, tmp_path: Path) -> None:
    x = images(space, 2)
    supernet.save(tmp_path / "w.safetensors", {"role": "w_star"})
    torch.testing.assert_close(Supernet.load(tmp_path / "w.safetensors")(x), supernet(x))
    network = space.sample(np.random.default_rng(2))
    model = extract(supernet, network)
    save_network(model, network, tmp_path / "n.safetensors")
    loaded = load_checkpoint(tmp_path / "n.safetensors")
    assert loaded.architecture == network
    torch.testing.assert_close(loaded.model(x), model(x))
    torch.testing.assert_close(copy.deepcopy(supernet)(x), supernet(x))


def test_a_supernet_for_other_classes_keeps_everything_else(supernet: Supernet) -> None:
    renewed = for_classes(supernet, 7)
    assert isinstance(renewed.space, CellSpace) and renewed.space.classes == 7
    assert renewed(images(supernet.space, 2)).shape == (2, 7)


def test_the_smallest_network_has_a_way_from_the_image_to_the_logits(space: CellSpace) -> None:
    smallest = space.smallest()
    assert isinstance(smallest, Architecture) and space.connected(smallest)
