"""Gradients of an untrained network with respect to its weights, of the loss and of its outputs, image by image.

The tangent kernel of a network with outputs f over images x_1 ... x_m is K = J J', J the Jacobian of all outputs with
respect to all weights. Its trace is the sum of the squared lengths of all rows of J. Of several outputs, the kernel
between images that is used here is that of their sum over sqrt(outputs): an m x m matrix.

Per-image gradients come from `torch.func`: the network as a function of its weights, vectorised over images. That needs
each output to depend on its own image alone, so statistics are fixed before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from deploynas.accuracy.training_free.score import ScoringBatch

IMAGES_AT_ONCE = 8  # whose gradients are in memory, all outputs of them

Weights = dict[str, Tensor]


def weights_of(network: nn.Module) -> Weights:
    return {name: value.detach() for name, value in network.named_parameters()}


def one_image(network: nn.Module) -> Callable[[Weights, Tensor], Tensor]:
    """The outputs for one image, as a function of the weights."""
    buffers = dict(network.named_buffers())

    def outputs(weights: Weights, image: Tensor) -> Tensor:
        return functional_call(network, (weights, buffers), (image[None],))[0]

    return outputs


def mean_loss_gradient(network: nn.Module, batch: ScoringBatch) -> Weights:
    """Of the mean cross-entropy over the batch."""
    loss = nn.functional.cross_entropy(network(batch.images), batch.labels)
    names, values = zip(*network.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, values, allow_unused=True)
    return {
        name: torch.zeros_like(value) if own is None else own
        for name, value, own in zip(names, values, found, strict=True)
    }


def squared_jacobians(network: nn.Module, images: Tensor) -> Tensor:
    """Of every image the sum of squares of its outputs' derivatives by all weights."""
    outputs, weights = one_image(network), weights_of(network)

    def squared(image: Tensor) -> Tensor:
        rows = jacrev(outputs)(weights, image)
        return torch.stack([(own.double() ** 2).sum() for own in rows.values()]).sum()

    return vmap(squared, chunk_size=IMAGES_AT_ONCE)(images)


def output_gradients(network: nn.Module, images: Tensor) -> Tensor:
    """(images, weights): of the sum of the outputs over the root of their number."""
    outputs, weights = one_image(network), weights_of(network)

    def summed(own: Weights, image: Tensor) -> Tensor:
        found = outputs(own, image)
        return found.sum() / found.numel() ** 0.5

    def flat(image: Tensor) -> Tensor:
        return torch.cat([own.flatten() for own in grad(summed)(weights, image).values()])

    return vmap(flat, chunk_size=IMAGES_AT_ONCE)(images)


def tangent_kernel(network: nn.Module, images: Tensor) -> Tensor:
    """(images, images), in double precision: its smallest eigenvalue is a small difference of large numbers."""
    rows = output_gradients(network, images).double()
    return rows @ rows.T
