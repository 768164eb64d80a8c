"""Once-for-all's public supernets (Cai et al. 2020): what checkpoints call each tensor, and of which space they are.

Two generations of names are read. The older one calls the inside of a block `mobile_inverted_conv`, the newer one
`conv`; in both a layer that is elastic may repeat its name (`bn.bn`, `conv.conv`, `linear.linear`). Their statistics
of batch norm are one set for all sub-networks: here every configuration gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deploynas.errors import InputError
from deploynas.space import Space
from deploynas.space.structure import of_stages
from deploynas.supernet.inverted_residual import ElasticInvertedResidual
from deploynas.supernet.kernels import KernelRule
from deploynas.supernet.new_classes import with_classes
from deploynas.supernet.stage_network import StageSupernet
from deploynas.supernet.torch_file import read_state_dict

# preset of the space: name of the public supernet
PUBLIC = {
    "ofa-mbv3": "ofa_mbv3_d234_e346_k357_w1.0",
    "ofa-mbv3-w1.2": "ofa_mbv3_d234_e346_k357_w1.2",
    "ofa-proxyless": "ofa_proxyless_d234_e346_k357_w1.3",
}
CLASSIFIER = "classifier.linear.weight"
SHOWN = 3  # names that an error lists of each sort
_SPELLINGS = (
    (".mobile_inverted_conv.", ".conv."),
    (".bn.bn.", ".bn."),
    (".conv.conv.weight", ".conv.weight"),
    (".linear.linear.", ".linear."),
)


def read_once_for_all(path: Path) -> StageSupernet:
    """The supernet of a checkpoint file; an error says what is missing, unknown or of another shape."""
    tensors = _by_one_spelling(read_state_dict(path), path)
    kernel_rule: KernelRule = "matrices" if any(name.endswith("_matrix") for name in tensors) else "centre"
    space = _space_of(tensors, kernel_rule, path)
    supernet = StageSupernet(space, kernel_rule)
    with torch.no_grad():
        for name, slot in _slots(supernet):
            value = tensors[name].value
            if not bool(value.isfinite().all()):
                raise InputError(f"{path}: `{tensors[name].name}` has values that are not finite")
            slot.copy_(value)  # statistics are copied to every row
    return supernet.eval()


@dataclass(frozen=True)
class _Named:
    name: str  # as the file has it
    value: Tensor


def _by_one_spelling(tensors: Mapping[str, Tensor], path: Path) -> dict[str, _Named]:
    """By the newer names without repetitions. Counters of batches are of no use to anyone."""
    found: dict[str, _Named] = {}
    for name, value in tensors.items():
        if name.endswith("num_batches_tracked"):
            continue
        spelled = name
        for other, ours in _SPELLINGS:
            spelled = spelled.replace(other, ours)
        if spelled in found:
            raise InputError(f"{path}: `{found[spelled].name}` and `{name}` are names of the same tensor")
        found[spelled] = _Named(name, value)
    return found


# -- which space -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """A file beside what a space would have in it."""

    public: str  # the supernet that was compared
    space: Space
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    misshapen: tuple[str, ...]
    matching: int

    @property
    def differences(self) -> int:
        return len(self.missing) + len(self.unknown) + len(self.misshapen)

    def in_words(self) -> str:
        sorts = {
            "missing": self.missing,
            "unknown": self.unknown,
            "of another shape": self.misshapen,
        }
        return "; ".join(
            f"{len(names)} tensor{'s are' if len(names) > 1 else ' is'} {sort} ({_first(names)})"
            for sort, names in sorts.items()
            if names
        )


def _space_of(tensors: Mapping[str, _Named], kernel_rule: KernelRule, path: Path) -> Space:
    """The one space that has all of the tensors, with their shapes, and no others; with the classifier's classes."""
    classifier = tensors.get(CLASSIFIER)
    classes = len(classifier.value) if classifier and classifier.value.dim() == 2 else None
    compared = []
    for preset, public in PUBLIC.items():
        space = Space.load(preset)
        compared.append(_compare(public, with_classes(space, classes or space.classes), kernel_rule, tensors))
    closest = max(compared, key=lambda found: (found.matching, -found.differences))
    if not closest.differences:
        return closest.space
    if closest.matching < len(tensors) / 2:
        raise InputError(
            f"{path}: not a MobileNet supernet of Once-for-all: {closest.matching} of its {len(tensors)} tensors fit "
            f"{closest.public}; {closest.in_words()}",
            hint=f"what can be imported: {', '.join(PUBLIC.values())}",
        )
    raise InputError(
        f"{path}: nearly a checkpoint of {closest.public}, but {closest.in_words()}",
        hint="a supernet as its authors publish it; single networks that were taken out of one are not read",
    )


def _compare(public: str, space: Space, kernel_rule: KernelRule, tensors: Mapping[str, _Named]) -> _Comparison:
    with torch.device("meta"):  # shapes without memory
        wanted = {name: _shape(name, slot) for name, slot in _slots(StageSupernet(space, kernel_rule))}
    there = {name: tuple(named.value.shape) for name, named in tensors.items()}
    shared = [name for name in wanted if name in there]
    misshapen = [name for name in shared if there[name] != wanted[name]]
    return _Comparison(
        public,
        space,
        missing=tuple(name for name in wanted if name not in there),
        unknown=tuple(named.name for name, named in tensors.items() if name not in wanted),
        misshapen=tuple(
            f"{tensors[name].name}: {_size(there[name])} instead of {_size(wanted[name])}" for name in misshapen
        ),
        matching=len(shared) - len(misshapen),
    )


def _shape(name: str, slot: Tensor) -> tuple[int, ...]:
    """Ours have a row of statistics per configuration, theirs have one for all."""
    return tuple(slot.shape[-1:] if ".bn." in name else slot.shape)


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _first(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


# -- which tensor is which ---------------------------------------------------------------------------


def _slots(supernet: StageSupernet) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the supernet by the name that Once-for-all has for it."""
    blocks: Any = supernet.blocks
    hidden: Any = supernet.conv_head
    first, last = blocks[0][0], blocks[-1][0]
    yield from _layer("first_conv", supernet.conv_stem, supernet.bn1)
    yield from _layer("blocks.0.conv.depth_conv", first.conv_dw, first.bn1)
    yield from _layer("blocks.0.conv.point_linear", first.conv_pw, first.bn2)
    searched = (block for stage in supernet.stages for block in stage)
    for number, block in enumerate(searched, start=1):
        assert isinstance(block, ElasticInvertedResidual), "Once-for-all's MobileNets have no other kind of block"
        yield from _block_slots(f"blocks.{number}.conv", block)
    if of_stages(supernet.space).head_hidden:
        yield from _layer("final_expand_layer", last.conv, last.bn1)
        yield "feature_mix_layer.conv.weight", hidden.weight
    else:
        yield from _layer("feature_mix_layer", last.conv, last.bn1)
    yield CLASSIFIER, supernet.classifier.weight
    yield "classifier.linear.bias", supernet.classifier.bias


def _block_slots(name: str, block: ElasticInvertedResidual) -> Iterator[tuple[str, Tensor]]:
    yield from _layer(f"{name}.inverted_bottleneck", block.conv_pw, block.bn1)
    yield from _layer(f"{name}.depth_conv", block.conv_dw, block.bn2)
    if block.matrices is not None:
        for larger, smaller in block.matrices.steps:
            yield f"{name}.depth_conv.conv.{larger}to{smaller}_matrix", block.matrices.matrix(larger, smaller)
    if block.se is not None:
        for theirs, layer in (("reduce", block.se.conv_reduce), ("expand", block.se.conv_expand)):
            yield f"{name}.depth_conv.se.fc.{theirs}.weight", layer.weight
            yield f"{name}.depth_conv.se.fc.{theirs}.bias", layer.bias
    yield from _layer(f"{name}.point_linear", block.conv_pwl, block.bn3)


def _layer(name: str, conv: Any, norm: Any) -> Iterable[tuple[str, Tensor]]:
    yield f"{name}.conv.weight", conv.weight
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.bn.{part}", getattr(norm, part)
