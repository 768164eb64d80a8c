"""What the surroundings of a network's weights look like, as a file keeps it, and what the figures allow to say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel

OURS, RANDOM, HEAVIEST = "the network", "random", "heaviest"
SURE = 2.0  # standard errors
FIGURES = {
    "rise": ("the loss around its weights rises", "more gently", "more steeply", "than around those of"),
    "gradient_variance": ("its gradients differ", "less", "more", "from image to image than those of"),
}
OTHERS = {RANDOM: "random networks", HEAVIEST: "the heaviest"}


class NetworkLandscape(BaseModel):
    """With inherited weights; `contour[i][j]`: the loss after step i along one direction and j along the other."""

    role: str  # the network, random, heaviest
    architecture: str
    contour: list[list[float]]
    rise: float  # of the loss, half way to the edge, mean of several pairs of directions
    rise_se: float
    gradient_variance: float  # of single images' gradients at the weights, added up over all weights
    gradient_variance_se: float


class Landscape(BaseModel):
    reach: float  # of the contour to every side, in lengths of the filters themselves
    pairs: int  # of directions
    images: int  # of the loss
    gradients: int  # images of the gradient variance
    networks: list[NetworkLandscape]
    findings: list[str]


def findings_of(networks: Sequence[NetworkLandscape]) -> list[str]:
    """The network against the mean of the random ones and against the heaviest, on both figures."""
    found = []
    for attribute, (what, less, more, than) in FIGURES.items():
        ours, own_se = _mean(networks, OURS, attribute)
        for role, whom in OTHERS.items():
            other, other_se = _mean(networks, role, attribute)
            if not np.isfinite(other):
                continue
            apart, se = ours - other, (own_se**2 + other_se**2) ** 0.5
            figures = f"({ours:.3g} against {other:.3g}, ± {se:.2g})"
            if abs(apart) > SURE * se:
                found.append(f"{what} {less if apart < 0 else more} {than} {whom} {figures}")
            else:
                found.append(f"whether {what} {less} {than} {whom} cannot be told {figures}")
    return found


def _mean(networks: Sequence[NetworkLandscape], role: str, attribute: str) -> tuple[float, float]:
    """With its standard error: that of each network's figure, and how networks of the role scatter."""
    own = [one for one in networks if one.role == role]
    if not own:
        return float("nan"), float("nan")
    values = np.array([getattr(one, attribute) for one in own])
    errors = np.array([getattr(one, f"{attribute}_se") for one in own])
    scatter = values.std(ddof=1) / len(own) ** 0.5 if len(own) > 1 else 0.0
    return float(values.mean()), float(max(scatter, (errors**2).sum() ** 0.5 / len(own)))
