"""Any architecture as a network on its own, with weights out of a supernet, or back into it.

Of stages of blocks that is a timm model. A sub-network's tensors are views of equally named supernet tensors: the first
channels, the centre of a kernel, the statistics of its configuration. `extract` copies from the views, `insert` copies
into them. A kernel that matrices make out of a larger one is no view; it can be copied from, not into.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from timm.layers import get_act_layer
from timm.models._efficientnet_blocks import SqueezeExcite
from timm.models._efficientnet_builder import decode_arch_def, round_channels
from timm.models.mobilenetv3 import MobileNetV3
from torch import Tensor, nn

from deploynas.blocks import Part, kind_of
from deploynas.errors import InputError
from deploynas.space import Architecture, CellSpace, StageSpace
from deploynas.space.notation import to_arch_def
from deploynas.space.structure import of_stages
from deploynas.supernet.batch_norm import set_norm_eps
from deploynas.supernet.cell_alone import CellNetwork
from deploynas.supernet.network import Supernet

MAX_STRIDE = 32  # where timm's builder starts to dilate instead of striding


def timm_model(architecture: Architecture) -> MobileNetV3:
    """A freshly initialised timm network of this architecture, built as timm builds its `hardcorenas_*`."""
    space = of_stages(architecture.space)
    _require_timm_strides(space)
    se_layer = partial(SqueezeExcite, gate_layer="hard_sigmoid", force_act_layer=nn.ReLU, rd_round_fn=round_channels)
    model = MobileNetV3(
        block_args=decode_arch_def(_in_timms_words(architecture)),
        num_classes=space.classes,
        in_chans=space.in_channels,
        stem_size=space.stem_channels,
        num_features=space.head_hidden or space.head_features,
        head_bias=space.head_hidden_bias,
        act_layer=get_act_layer(space.head_activation),
        se_layer=se_layer,
    )
    # what timm's class has no argument for
    model.conv_stem.stride = (space.stem_stride, space.stem_stride)
    model.bn1.act = get_act_layer(space.stem_activation)(inplace=True)
    if not space.head_hidden:
        model.conv_head, model.act2 = nn.Identity(), nn.Identity()
    for stage, b, part in _not_in_timm(architecture):
        cast(nn.Sequential, model.blocks[stage])[b] = kind_of(part.code).alone(part)
    set_norm_eps(model, space.norm_eps)
    return model


def network_alone(architecture: Architecture) -> nn.Module:
    """A freshly initialised network of this architecture, as its kind of space has it."""
    match architecture.space:
        case StageSpace():
            return timm_model(architecture)
        case CellSpace():
            return CellNetwork(architecture)
        case space:
            raise InputError(f"no network for spaces such as `{space.name}`")


def extract(supernet: Supernet, architecture: Architecture) -> nn.Module:
    """The sub-network with inherited weights; in evaluation mode it computes what the supernet does there."""
    supernet.space.require_member(architecture)
    model = network_alone(architecture)
    inherited = {name: view.detach().clone() for name, view in supernet.views(architecture)}
    counters = {name: value for name, value in model.state_dict().items() if name.endswith("num_batches_tracked")}
    model.load_state_dict({**counters, **inherited})
    return model.train(supernet.training).to(supernet.classifier.weight.device)


@torch.no_grad()
def insert(supernet: Supernet, architecture: Architecture, model: nn.Module) -> None:
    """Write a network's weights (timm's own `hardcorenas_*`, or a fine-tuned one) into its path."""
    supernet.space.require_member(architecture)
    state = model.state_dict()
    views = dict(supernet.views(architecture))
    wrong = [name for name in state if not name.endswith("num_batches_tracked") and name not in views]
    wrong += [name for name, view in views.items() if name not in state or state[name].shape != view.shape]
    if wrong:
        raise InputError(
            f"the model is not this architecture: {len(wrong)} tensors do not match, first `{wrong[0]}`",
            hint=f"the architecture is {architecture}",
        )
    _require_views(supernet, views)
    for name, view in views.items():
        view.copy_(state[name])


def _require_views(supernet: Supernet, views: dict[str, Tensor]) -> None:
    """Refuse to write into tensors that were computed: nothing would come of it."""
    own = {tensor.untyped_storage().data_ptr() for tensor in supernet.state_dict().values()}
    computed = [name for name, view in views.items() if view.untyped_storage().data_ptr() not in own]
    if computed:
        raise InputError(
            f"{len(computed)} kernels of this network are computed from larger ones in the supernet, and cannot be "
            f"written, first `{computed[0]}`",
            hint="a supernet whose `kernel_rule` is `centre`, or a network with the largest kernels everywhere",
        )


def _in_timms_words(architecture: Architecture) -> list[list[str]]:
    """For timm's builder; a convolution of the same shape stands where a block is that timm does not have."""
    written = to_arch_def(architecture)
    for stage, b, part in _not_in_timm(architecture):
        written[stage][b] = f"cn_r1_k1_s{part.stride}_c{part.out_channels}"
    return written


def _not_in_timm(architecture: Architecture) -> Iterator[tuple[int, int, Part]]:
    """Stage as timm counts it, number in the stage, and the part of every block that timm does not have."""
    space = of_stages(architecture.space)
    for s, b, c in architecture.blocks():
        if not kind_of(architecture.config(s, b).code).in_timm:
            yield s + (1 if space.first else 0), b, space.block(s, b, c)


def _require_timm_strides(space: StageSpace) -> None:
    total = 2  # timm counts its stem as 2, whatever ours is
    for stride in [space.first.stride if space.first else 1, *(stage.stride for stage in space.stages)]:
        total *= stride
    if total > MAX_STRIDE:
        raise InputError(
            f"space `{space.name}` strides by more than {MAX_STRIDE}, where timm's builder turns to dilation",
            hint="give one of the stages stride 1",
        )
