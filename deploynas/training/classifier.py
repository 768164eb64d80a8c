"""A supernet's classifier fitted to the training images, all other weights as they are.

Multinomial logistic regression on the features that reach the classifier, with an L2 penalty (scikit-learn's default,
C = 1, on standardised features). The problem is convex, so there is nothing to tune and the result does not depend on
where it starts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.evaluation import model_output

PENALTY = 1.0  # on half the sum of squared weights, against the summed loss of the images
STEPS = 200


@torch.no_grad()
def fit_classifier(
    supernet: Supernet,
    batches: Batches,
    paths: Architecture | RandomPaths,
    on_progress: OnProgress = silent,
) -> None:
    """In place, for images that all take one path, or each a random one."""
    features, labels = _features(supernet, batches, paths, on_progress)
    if len(labels.unique()) < 2:
        raise InputError("a classifier needs images of at least two classes")
    weight, bias = _logistic(features.double(), labels, supernet.space.classes)
    supernet.classifier.weight.copy_(weight)
    supernet.classifier.bias.copy_(bias)


def _features(
    supernet: Supernet, batches: Batches, paths: Architecture | RandomPaths, on_progress: OnProgress
) -> tuple[Tensor, Tensor]:
    """What reaches the classifier for every training image, and the labels."""
    seen: list[Tensor] = []
    handle = supernet.classifier.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].cpu()))
    labels = []
    try:
        for images, own in batches.watched(batches.data.train, on_progress, "a classifier for the data"):
            model_output(supernet, images, paths)
            labels.append(own.cpu())
    finally:
        handle.remove()
    return torch.cat(seen), torch.cat(labels)


def _logistic(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weight and bias for the features as they come."""
    deviation, mean = torch.std_mean(features, dim=0, correction=0)
    scale = torch.where(deviation > 0, 1 / deviation.clamp(min=1e-12), 0.0)  # what never changes says nothing
    x = (features - mean) * scale
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            fit = F.cross_entropy(F.linear(x, weight, bias), labels, reduction="sum")
            value = (fit + PENALTY / 2 * weight.square().sum()) / len(x)
            value.backward()
        return value

    optimizer.step(loss)
    raw = weight.detach() * scale
    return raw, bias.detach() - raw @ mean
