"""The ways to choose widths, by name: what each ranks channels by, and how it turns a ranking into widths.

`exact` adds up the importance of channels and solves for the widths; the others put the channels of all layers in one
ranking and cut it where the budget says. Each works on a network of widths, which it leaves with the gates that it has
learned folded in, and with the most important channels of every block first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deploynas.errors import InputError
from deploynas.latency.table import LatencyTable
from deploynas.progress import OnProgress, silent
from deploynas.search.widths import best_widths, by_threshold, ms_per_channel, nearest_widths
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.supernet.width_network import Gates, lots, magnitudes, sort_by
from deploynas.training.batches import Batches
from deploynas.training.gates import GateSchedule, channel_importance, learn_gates

if TYPE_CHECKING:
    from torch import Tensor

METHODS = ("exact", "device-aware", "gates", "magnitude", "random")
CONTROLS = ("magnitude", "random")


@dataclass(frozen=True)
class Ranking:
    """A network of widths whose channels one method has put in order."""

    method: str
    path: Path  # of the network of widths
    checkpoint: Checkpoint
    importance: tuple[np.ndarray, ...]
    table: LatencyTable

    def within(self, budget_ms: float) -> Architecture:
        """The widths that this method chooses; `GateError` if even the narrowest take longer by the table."""
        choose = best_widths if self.method == "exact" else by_threshold
        return choose(self.checkpoint.space, self.importance, self.table, budget_ms)


@dataclass(frozen=True)
class Ranker:
    """Ranks channels of one network by any method; `whole` makes its network of widths, anew for each."""

    whole: Callable[[], Supernet]
    batches: Batches
    table: LatencyTable
    schedule: GateSchedule

    def rank(self, method: str, budget_ms: float, path: Path, about: dict, on_progress: OnProgress = silent) -> Ranking:
        """By one method; the network of widths is left in `path`, to inherit from.

        Gates are learned until what is left of them keeps the budget; the other methods do not need to know it.
        """
        if method not in METHODS:
            raise InputError(f"no method `{method}`", hint=f"one of {', '.join(METHODS)}")
        supernet = self.whole().to(self.batches.device)
        importance = self._importance(method, supernet, budget_ms, on_progress)
        sort_by(supernet, importance)
        supernet.save(path, about)
        ranked = tuple(own.cpu().numpy() for own in importance)
        return Ranking(method, path, load_checkpoint(path), ranked, self.table)

    def _importance(self, method: str, supernet: Supernet, budget_ms: float, on_progress: OnProgress) -> list[Tensor]:
        match method:
            case "exact":
                return channel_importance(Gates(supernet), self.batches, self.schedule, on_progress)
            case "gates":
                return self._gates(supernet, None, budget_ms, on_progress)
            case "device-aware":
                rates = ms_per_channel(supernet.space, self.table.block_ms)
                return self._gates(supernet, rates, budget_ms, on_progress)
            case "magnitude":
                return magnitudes(supernet)
            case "random":
                return lots(supernet, self.schedule.seed)
            case _:
                raise AssertionError(method)

    def _gates(
        self, supernet: Supernet, weights: list[float] | None, budget_ms: float, on_progress: OnProgress
    ) -> list[Tensor]:
        gates = Gates(supernet)

        def enough(left: list[int]) -> bool:
            return self.table.predict(nearest_widths(supernet.space, left)) <= budget_ms

        lived = learn_gates(gates, self.batches, self.schedule, weights, enough, on_progress)
        gates.fold()
        return lived
