"""Names: the kinds of estimator with where they live, and what `estimate` can be asked for.

Imports nothing heavy, not even NumPy, so that a command can list the names before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from deploynas.errors import InputError

ESTIMATORS = {
    "bilinear": "deploynas.accuracy.bilinear:BilinearEstimator",
    "quadratic": "deploynas.accuracy.quadratic:QuadraticEstimator",
    "mlp": "deploynas.accuracy.mlp:MLPEstimator",
    "indexed": "deploynas.accuracy.indexed:IndexedEstimator",
    "fourier": "deploynas.accuracy.fourier:FourierEstimator",
    "training-free": "deploynas.accuracy.training_free.estimator:TrainingFreeEstimator",
    "relaxed": "deploynas.accuracy.relaxed:RelaxedEstimator",
}

# `indexed`: one or two sums behind an increasing link, or a plain sum on the scale of log odds where those do not
# predict held-out images better; `contributions` are measured with the same passes (eq. 3 and 6). The others are
# learned from whole networks: `bilinear` has the form of eq. 3, `coupled` that of eq. 8, where a block's worth depends
# on the depth of every stage, `quadratic` that of eq. 9, `fourier` a few parities (CoNAS)
Method = Literal["indexed", "contributions", "bilinear", "coupled", "quadratic", "fourier", "mlp"]
ESTIMATION_METHODS: tuple[Method, ...] = (
    "indexed",
    "contributions",
    "bilinear",
    "coupled",
    "quadratic",
    "fourier",
    "mlp",
)

# a ranking by what networks are at initialisation: no supernet is asked, so it has a way of its own (`training_free/`)
TRAINING_FREE = "training-free"

# those that a file of measured networks is enough for
ResultsMethod = Literal["indexed", "bilinear", "coupled", "quadratic", "fourier", "mlp"]
RESULTS_METHODS: tuple[ResultsMethod, ...] = ("indexed", "bilinear", "coupled", "quadratic", "fourier", "mlp")

# how the paths of validation passes are drawn: one for each image, one for each batch, or one option fixed for all
Sampling = Literal["pooled", "single-path", "per-decision"]
SAMPLINGS: tuple[Sampling, ...] = ("pooled", "single-path", "per-decision")

# what a contribution means: see `contrasts`
Estimand = Literal["projection", "paper"]
ESTIMANDS: tuple[Estimand, ...] = ("projection", "paper")

# what is averaged over images
Score = Literal["accuracy", "log-likelihood"]
SCORES: tuple[Score, ...] = ("accuracy", "log-likelihood")


def require_known(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is none of the known ones."""
    if name not in known:
        raise InputError(f"no {what} `{name}`", hint=f"one of {', '.join(known)}")
