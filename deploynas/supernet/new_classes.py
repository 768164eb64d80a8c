"""A supernet for other classes: every weight but the classifier's stays."""

from __future__ import annotations

import re

import torch

from deploynas.space import Space
from deploynas.supernet.network import Supernet


def with_classes(space: Space, classes: int) -> Space:
    """The same space for another number of classes. That is another space, so it gets a name of its own."""
    if classes == space.classes:
        return space
    name = re.sub(r"-\d+-classes$", "", space.name)
    return space.renamed(f"{name}-{classes}-classes", classes)


@torch.no_grad()
def for_classes(supernet: Supernet, classes: int) -> Supernet:
    """The same features behind a classifier of zeros, which knows nothing until it is fitted."""
    renewed = Supernet(with_classes(supernet.space, classes), supernet.kernel_rule)
    features = {name: value for name, value in supernet.state_dict().items() if not name.startswith("classifier.")}
    renewed.load_state_dict(features, strict=False)
    for parameter in renewed.classifier.parameters():
        parameter.zero_()
    return renewed.eval()
