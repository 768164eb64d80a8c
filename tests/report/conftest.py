"""Reports made by hand, small enough to know every number of them; `report` is as earlier versions wrote it."""

from __future__ import annotations

import pytest
from timings import timing

from deploynas.report.document import ReportFile

ARCHITECTURE = "ds_r1_k3_s1_e1_c8_nre | ir_r1_k3_s1_e2_c8_nre_se0.25 | ir_r1_k5_s2_e2.5_c16_nhs | cn_r1_k1_s1_c24_nhs"
SHIPPED = 3  # of the frontier's networks


def block(name: str, share: float, predicted: float | None) -> dict:
    shape = {"in_channels": 8, "out_channels": 8, "stride": 1, "height": 8, "width": 6, "params": 900, "macs": 40_000}
    text = "3×3, expand ×2, SE" if "stage" in name else "conv 3×3"
    return {
        "name": name,
        "kind": "block",
        "text": text,
        **shape,
        "share": share,
        "measured_ms": share,
        "predicted_ms": predicted,
    }


def file(precision: str, latency_ms: float, accuracy: float) -> dict:
    path = "model.onnx" if precision == "fp32" else "model.int8.onnx"
    timing = {
        "relative_error": 0.01,
        "stable": True,
        "percentiles_ms": {"p95": 1.2 * latency_ms},
        "throughput_per_s": 900.0,
    }
    return {
        "path": path,
        "precision": precision,
        "size_bytes": 90_000,
        "accuracy": accuracy,
        "latency_ms": latency_ms,
        **timing,
    }


@pytest.fixture
def report() -> ReportFile:
    frontier = [
        {"latency_ms": 0.5 + 0.1 * i, "accuracy": 0.7 + 0.02 * i, "architecture": ARCHITECTURE} for i in range(7)
    ]
    measured = {**frontier[3], "predicted_ms": 0.8, "predicted_accuracy": 0.76, "latency_ms": 0.83, "accuracy": 0.75}
    return ReportFile.model_validate(
        {
            "title": "tiny on <fast> & small",
            "created": "2030-01-01T00:00:00Z",
            "space": "tiny",
            "space_size": "72",
            "device": {
                "name": "fast",
                "provider": "cpu",
                "threads": 1,
                "batch": 1,
                "precision": "fp32",
                "statistic": "p20",
            },
            "hardware": {"processor": "A processor", "cores": 2},
            "data": {
                "name": "pets:/data",
                "classes": ["cat", "dog"],
                "train_images": 80,
                "validation_images": 20,
                "test_images": 0,
            },
            "architecture": ARCHITECTURE,
            "choices": [[0], [0]],
            "budget_ms": 0.9,
            "gated": "fp32",
            "params": 12_345,
            "macs": 1_234_567,
            "peak_memory_bytes": 4096,
            "predicted_ms": 0.8,
            "table_error": 0.017,
            "predicted_accuracy": 0.76,
            "predicted_accuracy_se": 0.004,
            "inherited_accuracy": 0.75,
            "test_accuracy": None,
            "files": [file("fp32", 0.84, 0.83), file("int8", 0.6, 0.82)],
            "blocks": [block("stem", 0.2, None), block("stage1/block1", 0.5, 0.3), block("stage2/block1", 0.3, 0.2)],
            "frontier": frontier,
            "measured": [measured],
            "table_networks": [{"predicted_ms": 0.7, "measured_ms": 0.72}],
            "rounds": [{"target_ms": 0.9, "predicted_ms": 0.9, "measured_ms": 0.95, "architecture": ARCHITECTURE}],
            "verification": {"batches": [1, 3, 8], "tolerance": 1e-4, "max_difference": 2e-6, "images": 20, "ties": 0},
            "calibration": {"method": "mse", "share": 0.05, "per_channel": True, "images": 4, "accuracy_drop": 0.01},
            "decisions": [
                {"name": "stage 1, kernel 3 → 5", "accuracy": 0.01, "accuracy_se": 0.001, "latency_ms": 0.1},
                {"name": "stage 2, se", "accuracy": -0.004},
            ],
            "warnings": ["the machine was <busy>"],
        }
    )


def expected(i: int) -> dict:
    """A network of the frontier with as many blocks as it is slow."""
    parts = [("stem", "conv 3×3", None), *((f"stage1/block{b + 1}", "5×5, expand ×2, SE", 0.1) for b in range(i + 1))]
    return {
        "latency_ms": 0.4 + 0.1 * (i + 1),
        "accuracy": 0.7 + 0.02 * i,
        "architecture": ARCHITECTURE if i == SHIPPED else f"{ARCHITECTURE} | ir_r{i}",
        "interval": (0.69 + 0.02 * i, 0.71 + 0.02 * i),
        "params": 1000 * (i + 1),
        "macs": 10**6 * (i + 1),
        "fixed_ms": 0.4,
        "blocks": [{"name": n, "text": t, "shape": "8→8 @ 8×6", "predicted_ms": p} for n, t, p in parts],
    }


def judgement(weights: str, found: float, random: list[float]) -> dict:
    part = {"one-shot": "validation", "fine-tuned": "test"}[weights]
    mean = sum(random) / len(random)
    roles = [
        {"role": "found", "accuracies": [found], "mean": found},
        {"role": "heaviest", "accuracies": [0.86], "mean": 0.86, "difference": -0.02, "interval": (-0.03, -0.01)},
        {"role": "random", "accuracies": random, "mean": mean, "se": 0.004, "difference": found - mean,
         "interval": (found - mean - 0.01, found - mean + 0.01)},
    ]  # fmt: skip
    return {"weights": weights, "part": part, "images": 2000, "roles": roles}


@pytest.fixture
def explorable(report: ReportFile) -> ReportFile:
    """A report with everything: a frontier that can be drawn, and other networks to compare with."""
    told = {"relative_error": 0.01, "predicted_ms": 0.8, "architecture": ARCHITECTURE}
    latencies = {"found": [0.84], "heaviest": [1.932], "random": [0.83, 0.85]}
    document = report.model_dump(by_alias=True) | {
        "expected": expected(SHIPPED),
        "frontier": [expected(i) for i in range(7)],
        "measured": [{**expected(5), "latency_ms": 1.02, "accuracy": 0.79, "predicted_ms": 1.0,
                      "predicted_accuracy": 0.8}],
        "gain": {
            "networks": [{"role": role, "latency_ms": ms, **told} for role, each in latencies.items() for ms in each],
            "one_shot": judgement("one-shot", 0.75, [0.7, 0.72]),
            "fine_tuned": judgement("fine-tuned", 0.846, [0.811]),
        },
        "changes": [
            {"name": "stage 1, depth 1 → 2", "accuracy": 0.02, "latency_ms": 0.2},
            {"name": "stage 1, kernel 3 → 5", "accuracy": 0.01, "latency_ms": 0.01},
            {"name": "stage 2, kernel 5 → 3", "accuracy": -0.004, "latency_ms": -0.05},
        ],
        "decisions": [],
    }  # fmt: skip
    return ReportFile.model_validate(document)


QUIET_MS, P50_MS = 0.84, 0.87
SCALE = 0.84 / 1.05  # the shipped network took 1.05 ms beside others


@pytest.fixture
def current(explorable: ReportFile) -> ReportFile:
    """As this version writes it: both latencies, loading, a wait, and the shipped network among the measured ones."""
    document = explorable.model_dump(by_alias=True)
    fp32, int8 = document["files"]
    loading = {"load_ms": 31.5, "first_ms": 2.25, "call_ms": 0.018}
    loading |= {"peak_memory_bytes": 91_000_000, "model_memory_bytes": 4_000_000}
    fp32["timing"] = timing(QUIET_MS, P50_MS).model_dump() | {"loading": loading}
    fp32["disturbance"] = P50_MS / QUIET_MS
    int8["timing"] = timing(0.6, 0.66).model_dump()
    document["measured"].append(
        {**expected(SHIPPED), "latency_ms": QUIET_MS, "accuracy": 0.75, "predicted_ms": 0.8, "predicted_accuracy": 0.76,
         "shipped": True}
    )  # fmt: skip
    heaviest = next(network for network in document["gain"]["networks"] if network["role"] == "heaviest")
    heaviest["architecture"] += " | ir_r9"
    document |= {
        "outcome": "held",
        "waits": [{"undisturbed_ms": 0.85, "p50_ms": 1.275, "disturbance": 1.5}],
        "joint_scale": SCALE,
        "profiler_slowdown": 5.13,
        "rounds": [
            {"target_ms": 0.9, "predicted_ms": 0.9, "measured_ms": 0.95, "architecture": "another", "exported": False},
            {
                "target_ms": 0.8,
                "predicted_ms": 0.8,
                "measured_ms": 0.84,
                "architecture": ARCHITECTURE,
                "exported": True,
            },
        ],
    }
    return ReportFile.model_validate(document)
