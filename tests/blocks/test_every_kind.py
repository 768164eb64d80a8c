"""What every kind of block must do, whatever it computes: one suite, run over the registry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from timm.models._efficientnet_builder import decode_arch_def

from deploynas import graph
from deploynas.blocks import KINDS, Place, kind_of
from deploynas.blocks.registry import read_config, record_config, weight
from deploynas.costs import Costs, part_costs
from deploynas.errors import InputError
from deploynas.export.fold import folded_weights
from deploynas.space import Architecture, Space
from deploynas.supernet.elastic import INACTIVE
from deploynas.supernet.extraction import extract, insert, timm_model
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths
from deploynas.supernet.searched_block import elastic_block

# what a space file may list for each kind, small enough to try everything
LISTS = {
    "ir": {"kind": "ir", "ratios": [1, 2.5], "kernels": [3, 5], "se": [0, 0.25]},
    "er": {"kind": "er", "ratios": [1, 2.5], "kernels": [1, 3, 5], "se": [0, 0.25]},
}
PLACES = [
    Place(8, 16, 2, "relu", 7, 6),
    Place(16, 16, 1, "hard_swish", 4, 4),
    Place(8, 8, 1, "swish", 2, 3),  # smaller than the largest kernel
    Place(8, 24, 2, "relu6", 5, 5),
]
kinds = pytest.mark.parametrize("code", KINDS)


def configs_of(code: str) -> list:
    return list(kind_of(code).lists.model_validate(LISTS[code]).configs())


def space_of(folder: Path, *codes: str) -> Space:
    """Two stages, so that blocks with and without stride, shortcut and company take part."""
    stage = {"activation": "hard_swish", "depths": [1, 3], "blocks": [LISTS[code] for code in codes]}
    file = {
        "name": "kinds",
        "input": {"channels": 1, "height": 12, "width": 10},
        "classes": 3,
        "stem": {"out": 8, "stride": 1},
        "stages": [{"out": 8, "stride": 2, **stage}, {"out": 16, "stride": 2, **stage}],
        "head": {"features": 24, "hidden": 16},
    }
    path = folder / "kinds.yaml"
    path.write_text(yaml.safe_dump(file))
    return Space.load(path)


def settle(model: torch.nn.Module) -> torch.nn.Module:
    """Give every statistic and bias a value of its own, so that a mix-up shows."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and (name.endswith(("bias", "running_mean", "running_var")) or "bn" in name):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model.eval()


def logits(model: onnx.ModelProto, x: torch.Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x.numpy()})[0]


def test_every_kind_has_lists_to_try() -> None:
    assert LISTS.keys() == KINDS.keys()


@kinds
def test_configurations_survive_files_and_notation(code: str) -> None:
    configs = configs_of(code)
    assert len(set(configs)) == len(configs) == len({str(config) for config in configs})
    for config in configs:
        assert read_config(record_config(config)) == config
        assert read_config({**record_config(config), "a_key_of_the_future": 1.0}) == config
        options = {"e": 1.0}
        for item in config.notation(PLACES[0]).split("_")[1:]:
            key = "se" if item.startswith("se") else item[0]
            options |= {key: float(item.removeprefix(key))} if key != "n" else {}
        assert kind_of(code).config.from_notation(options) == config
    assert max(configs, key=weight) == configs[-1]


@kinds
def test_a_part_costs_what_timms_module_has(code: str, tmp_path: Path) -> None:
    space = space_of(tmp_path, code)
    for seed in range(6):
        architecture = space.sample(np.random.default_rng(seed))
        model = timm_model(architecture)
        assert Costs.of(space, architecture).params == sum(p.numel() for p in model.parameters())


@kinds
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_graph_of_a_part_is_valid_in_every_precision(code: str, place: Place) -> None:
    for config in configs_of(code):
        part = config.part(place)
        assert part.code == code and part.role == "block" and part.words()
        assert part == config.part(place) and hash(part) == hash(config.part(place))
        for precision in graph.PRECISIONS:
            model = graph.chain([("part", part)], form=graph.Form(precision=precision))
            onnx.checker.check_model(model, full_check=True)
            x = torch.randn(1, place.in_channels, place.height, place.width)
            leaving = (1, place.out_channels, -(-place.height // place.stride), -(-place.width // place.stride))
            assert logits(model, x).shape == leaving
        costs = part_costs(part)
        assert min(costs.params, costs.macs, costs.size_bytes, costs.peak_memory_bytes) > 0


@kinds
def test_a_network_computes_the_same_in_timm_the_supernet_and_onnx(code: str, tmp_path: Path) -> None:
    space = space_of(tmp_path, code)
    torch.manual_seed(0)
    supernet = settle(Supernet(space))
    x = torch.randn(3, 1, 12, 10)
    for seed in range(4):
        architecture = space.sample(np.random.default_rng(seed))
        model = extract(supernet, architecture)
        expected = model(x)
        torch.testing.assert_close(supernet(x, architecture), expected, rtol=1e-4, atol=1e-4)
        parts = space.parts(architecture)
        written = graph.chain(parts, folded_weights(model, parts), graph.Form(None))
        np.testing.assert_allclose(logits(written, x), expected.detach().numpy(), rtol=1e-3, atol=1e-4)
        assert Architecture.parse(str(architecture), space) == architecture
        if kind_of(code).in_timm:
            assert len(decode_arch_def([stage.split() for stage in str(architecture).split("|")])) == 3


@kinds
def test_weights_that_are_inserted_come_out_again(code: str, tmp_path: Path) -> None:
    space = space_of(tmp_path, code)
    architecture = space.sample(np.random.default_rng(5))
    trained = settle(timm_model(architecture))
    supernet = Supernet(space).eval()
    insert(supernet, architecture, trained)
    x = torch.randn(2, 1, 12, 10)
    torch.testing.assert_close(extract(supernet, architecture)(x), trained(x), rtol=1e-4, atol=1e-4)


@kinds
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_batch_of_many_paths_is_its_images_one_by_one(code: str, place: Place) -> None:
    configs = configs_of(code)
    torch.manual_seed(0)
    block = settle(elastic_block(configs, [config.part(place) for config in configs]))
    skips = place.stride == 1 and place.in_channels == place.out_channels
    choice = torch.tensor([*range(len(configs)), *([INACTIVE] if skips else []), 0])
    x = torch.randn(len(choice), place.in_channels, place.height, place.width)
    together = block(x, choice)
    for i, c in enumerate(choice.tolist()):
        alone = x[i : i + 1] if c == INACTIVE else block(x[i : i + 1], c)
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-4, atol=1e-5)


@kinds
@pytest.mark.parametrize("training", [False, True])
def test_a_mixture_is_the_sum_of_its_configurations(code: str, training: bool) -> None:
    configs = configs_of(code)
    for place in PLACES[:3]:
        torch.manual_seed(0)
        block = settle(elastic_block(configs, [config.part(place) for config in configs])).train(training)
        weights, x = torch.rand(len(configs)), torch.randn(4, place.in_channels, place.height, place.width)
        expected = sum(weights[c] * block(x, c) for c in range(len(configs)))
        torch.testing.assert_close(block.mixed(x, weights), expected, rtol=1e-4, atol=1e-4)


@kinds
def test_gradients_reach_every_weight(code: str) -> None:
    configs, place = configs_of(code), PLACES[1]
    block = elastic_block(configs, [config.part(place) for config in configs]).train()
    choice = torch.arange(len(configs)).repeat(2)
    block(torch.randn(len(choice), place.in_channels, place.height, place.width), choice).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in block.parameters())


@kinds
def test_sorting_channels_changes_no_output_of_the_heaviest(code: str) -> None:
    configs, place = configs_of(code), PLACES[1]
    torch.manual_seed(0)
    block = settle(elastic_block(configs, [config.part(place) for config in configs]))
    heaviest = configs.index(max(configs, key=weight))
    x = torch.randn(3, place.in_channels, place.height, place.width)
    before, weights = block(x, heaviest), {name: tensor.clone() for name, tensor in block.state_dict().items()}
    block.sort_channels()
    torch.testing.assert_close(block(x, heaviest), before, rtol=1e-4, atol=1e-5)
    takes_first_channels = len({config.factors().get("expansion") for config in configs}) > 1
    moved = any(not torch.equal(tensor, weights[name]) for name, tensor in block.state_dict().items())
    assert moved == takes_first_channels


def test_an_unknown_kind_is_an_error_everywhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no kind of block `unheard`"):
        kind_of("unheard")
    with pytest.raises(InputError, match="no kind of block `unheard`"):
        read_config({"kind": "unheard", "size": 3.0})
    space = space_of(tmp_path, "ir")
    with pytest.raises(InputError, match="starts with `ir_`"):
        Architecture.parse(str(space.smallest()).replace("ir_", "unheard_"), space)
    text = (tmp_path / "kinds.yaml").read_text().replace("kind: ir", "kind: unheard")
    (tmp_path / "kinds.yaml").write_text(text)
    with pytest.raises(InputError, match="kind"):
        Space.load(tmp_path / "kinds.yaml")


def test_a_stage_may_mix_kinds(tmp_path: Path) -> None:
    """Every network of a mixed space is timm's own, in the supernet, as ONNX, and along many paths at once."""
    space = space_of(tmp_path, *KINDS)
    assert space != space_of(tmp_path, "ir") and Space.from_description(space.describe()) == space
    assert space.heaviest().config(0, 0).code == list(KINDS)[-1]
    torch.manual_seed(0)
    supernet = settle(Supernet(space))
    networks = [space.sample(np.random.default_rng(seed)) for seed in range(8)]
    assert {network.config(s, b).code for network in networks for s, b, _ in network.blocks()} == set(KINDS)
    x = torch.randn(len(networks), 1, 12, 10)
    together = supernet(x, as_paths(space.rows(networks)))
    for network, one_hot in zip(networks, space.decisions.one_hot(space.rows(networks)), strict=True):
        mixed = supernet.mixed(x, torch.from_numpy(one_hot).float())
        torch.testing.assert_close(mixed, supernet(x, network), rtol=1e-4, atol=1e-4)
    for i, network in enumerate(networks):
        model = extract(supernet, network)
        expected = model(x[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], expected, rtol=1e-4, atol=1e-4)
        parts = space.parts(network)
        written = graph.chain(parts, folded_weights(model, parts), graph.Form(None))
        np.testing.assert_allclose(logits(written, x[i : i + 1]), expected.detach().numpy(), rtol=1e-3, atol=1e-4)
        assert Architecture.parse(str(network), space) == network
        assert Costs.of(space, network).params == sum(p.numel() for p in model.parameters())
