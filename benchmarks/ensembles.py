"""Are two networks better than one within the same latency? Every way to find a pair, beside the best single network.

    deploynas run --space fashion --data fashion-mini --devices cpu-1t --out runs/fashion
    python benchmarks/ensembles.py runs/fashion

Pairs that answer one after the other, so that their latencies add up, at three budgets: multiples of what the two
fastest networks take together. Ways: draws from the posterior (MC), SVGD-RD, the exact best pair of a list, draws with
all options equally likely (random). Beside them the best single network: of all that any way looked at in this run, of
as many draws again, and of the estimator's optima, by the same loss on the same validation images. Errors are on test
images, which chose nothing. With `--fine-tune`, the exact pair and the single network of every budget are fine-tuned,
as a user would. Also: does the posterior rank networks (`ranking`), and does the averaging file take what the table
says (`--measure`)?
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploynas.accuracy.ensemble_scores import calibration_error, disagreement, error, log_loss, paired_difference
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.oneshot import class_probabilities
from deploynas.accuracy.posterior import Posterior, PosteriorSettings
from deploynas.accuracy.validation import kendall
from deploynas.device import Device
from deploynas.files import now
from deploynas.latency.hardware import hardware
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.ensemble_result import EnsembleOrder
from deploynas.pipeline.ensembles import STEPS, EnsembleSearch, EnsembleWishes
from deploynas.pipeline.export_ensemble import EnsembleShipment
from deploynas.pipeline.finetune import FineTuneOptions, fine_tuning_task
from deploynas.pipeline.network_predictions import NetworkPredictions
from deploynas.pipeline.posterior import posterior_of
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.search_request import BudgetedTable
from deploynas.pipeline.supernet import open_supernet
from deploynas.search.ensemble_record import EnsembleRecord
from deploynas.search.frontier import frontier
from deploynas.search.joint_budget import JointBudget
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.finetune import finetune
from deploynas.training.recipe import Recipe

RESULT = Path(__file__).parent / "results" / "ensembles.json"
WAYS = ("mc", "svgd-rd", "exact", "random")
MULTIPLES = (1.25, 2.0, 3.0)  # of what the two fastest networks take together
RANKED = 40  # networks whose posterior is held against their accuracy


class Bench:
    def __init__(self, folder: RunFolder, device: str, draws: int) -> None:
        self.folder, self.draws = folder, draws
        self.supernet = open_supernet(folder)
        self.space = self.supernet.space
        self.table_path = folder.device(device).table
        self.table = LatencyTable.load(self.table_path)
        self.predictions = NetworkPredictions(self.supernet)
        front = frontier(self.space, load_estimator(folder.device(device).estimator), self.table)
        self.front, self.fastest = front, float(front.latencies_ms[0])
        started = time.process_time()
        self.posterior = posterior_of(self.supernet, PosteriorSettings())
        self.fitting_s = time.process_time() - started

    def search(self, way: str, budget_ms: float, seed: int) -> tuple[tuple[Architecture, ...], EnsembleRecord]:
        posterior = Posterior.uniform(self.space.decisions) if way == "random" else self.posterior
        also = [point.architecture for point in self.front[: self._within(budget_ms)].thin(STEPS)]
        budget = JointBudget.of(self.space, self.table, budget_ms, "serial")
        wishes = EnsembleWishes(2, way, self.draws, seed=seed)  # type: ignore[arg-type]
        return EnsembleSearch(posterior, self.predictions, budget, wishes, self.space, also).search()

    def _within(self, budget_ms: float) -> int:
        return int(np.searchsorted(self.front.latencies_ms, budget_ms, side="right"))

    def compared(self, budget_ms: float, seed: int) -> dict[str, Any]:
        """All ways at one budget, against the best of the single networks that any of them found."""
        found = {way: self.search(way, budget_ms, seed) for way in WAYS}
        records = [record for _, record in found.values()]
        single = min((record.single for record in records), key=lambda own: own.scores["validation"].log_loss)
        alone = self.space.architecture(single.choices)
        labels, said = self.predictions.labels("test"), self.predictions.of(alone, "test")
        rows: dict[str, Any] = {}
        for way, (members, record) in found.items():
            together = np.mean([self.predictions.of(one, "test") for one in members], axis=0)
            apart, se = paired_difference(together, said, labels)
            rows[way] = {
                "networks": [str(one) for one in members],
                "latency_ms": record.latency_ms,
                "looked_at": record.networks,
                "sets": record.sets,
                "left_out": record.repeated,
                **record.scores["test"].model_dump(),
                "validation_error": record.scores["validation"].error,
                "validation_log_loss": record.scores["validation"].log_loss,
                "error_less_single": apart,
                "error_less_single_se": se,
            }
        one = {"network": str(alone), "latency_ms": single.latency_ms, **single.scores["test"].model_dump()}
        one["validation_error"] = single.scores["validation"].error
        one["validation_log_loss"] = single.scores["validation"].log_loss
        one["chosen_from"] = max(record.single.candidates for record in records)
        return {"budget_ms": budget_ms, "seed": seed, "single": one, **rows}

    def ranking(self) -> dict[str, Any]:
        """Does what the posterior says for a network say how accurate a network is? Of random networks, one-shot."""
        rows = self.space.decisions.draw(RANKED, np.random.default_rng(99))
        networks, labels = self.space.architectures(rows), self.predictions.labels()
        accuracies = [1 - error(self.predictions.of(one), labels) for one in networks]
        scores = self.posterior.log_evidence(self.space.decisions, self.space.rows(networks))
        return {
            "networks": RANKED,
            "kendall_tau": kendall(scores, np.array(accuracies)),
            "kendall_tau_of_latency": kendall(
                np.array([self.table.predict(n) for n in networks]), np.array(accuracies)
            ),
        }

    def tuned(self, case: dict[str, Any], seed: int) -> dict[str, Any]:
        """The exact pair and the single network, fine-tuned."""
        labels = self.predictions.labels("test")
        pair = np.stack([self._fine_tuned(text, seed) for text in case["exact"]["networks"]])
        single = self._fine_tuned(case["single"]["network"], seed)
        together = pair.mean(0)
        apart, se = paired_difference(together, single, labels)
        return {
            "budget_ms": case["budget_ms"],
            "seed": seed,
            "member_errors": [error(own, labels) for own in pair],
            "disagreement": disagreement(pair),
            "error": error(together, labels),
            "log_loss": log_loss(together, labels),
            "calibration_error": calibration_error(together, labels),
            "single_error": error(single, labels),
            "single_log_loss": log_loss(single, labels),
            "single_calibration_error": calibration_error(single, labels),
            "error_less_single": apart,
            "error_less_single_se": se,
        }

    def _fine_tuned(self, text: str, seed: int) -> np.ndarray:
        network = Architecture.parse(text, self.space)
        recipe = Recipe.for_space(self.space.name, None, [f"seed={seed}"])
        with tempfile.TemporaryDirectory() as folder:
            made = finetune(fine_tuning_task(self.supernet, network, FineTuneOptions(recipe)), Path(folder))
            model = load_checkpoint(made.path).model
        batches, test = self.supernet.batches, self.supernet.data.test
        assert test is not None, "the data of this benchmark have test images"
        return class_probabilities(model.eval().to(batches.device), batches.evaluation(test))[0]

    def measured(self, budgets: Sequence[float], device: Device) -> Iterator[dict[str, Any]]:
        """What the averaging file of an exact pair takes, beside the table's sum."""
        for budget_ms in budgets:
            table = BudgetedTable(self.table_path, self.table, budget_ms)
            order = EnsembleOrder(self.supernet, table, "serial", EnsembleWishes(2, "exact", self.draws))
            with tempfile.TemporaryDirectory() as folder:
                found = Path(folder) / "found.json"
                order.search().save(found)
                # a budget that cannot be missed: what is wanted is the figure
                shipment = EnsembleShipment(found, self.supernet, device, budget_ms=10 * budget_ms)
                made = shipment.deliver(Path(folder) / "out")
                (file,) = made.files
                assert file.timing and made.document.ensemble and made.checked
                predicted, quiet = made.document.ensemble.latency_ms, file.timing.undisturbed
                yield {
                    "budget_ms": budget_ms,
                    "predicted_ms": predicted,
                    "undisturbed_ms": quiet.latency_ms,
                    "interval_ms": quiet.interval_ms,
                    "as_it_was_p50_ms": file.timing.clock.p50_ms,
                    "max_difference_from_members": made.checked.max_difference,
                }


def summary(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over seeds."""
    rows = []
    for budget_ms in dict.fromkeys(case["budget_ms"] for case in cases):
        own = [case for case in cases if case["budget_ms"] == budget_ms]
        for way in ("single", *WAYS):
            keys = ["error", "log_loss", "calibration_error", "latency_ms"]
            keys += [] if way == "single" else ["mean_member_error", "disagreement", "error_less_single"]
            rows.append(
                {"budget_ms": budget_ms, "way": way} | {k: float(np.mean([c[way][k] for c in own])) for k in keys}
            )
            rows[-1]["error_range"] = [f([c[way]["error"] for c in own]) for f in (min, max)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument(
        "--fine-tune", type=int, default=0, metavar="SEEDS", help="fine-tune the pairs of seed 0, so often"
    )
    parser.add_argument("--measure", action="store_true", help="also export and time the exact pair of every budget")
    options = parser.parse_args()
    document = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    bench = Bench(RunFolder(options.run), options.device, options.draws)
    budgets = [multiple * 2 * bench.fastest for multiple in MULTIPLES]
    if options.measure:
        document["measured"] = list(bench.measured(budgets, Device.load(options.device)))
    elif options.fine_tune:
        first = [case for case in document["cases"] if case["seed"] == 0]
        document["fine_tuned"] = [bench.tuned(case, seed) for seed in range(options.fine_tune) for case in first]
    else:
        cases = [bench.compared(budget_ms, seed) for budget_ms in budgets for seed in range(options.seeds)]
        document |= {
            "created": now(),
            "hardware": hardware().model_dump(),
            "load_at_start": os.getloadavg()[0],
            "cpu_s": time.process_time(),
            "posterior": {
                "steps": bench.posterior.steps,
                "cpu_s": bench.fitting_s,
                "sharpness": bench.posterior.sharpness(bench.space.decisions),
            },
            "draws": options.draws,
            "ranking": bench.ranking(),
            "summary": summary(cases),
            "cases": cases,
        }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document.get("summary"), indent=1))


if __name__ == "__main__":
    main()
