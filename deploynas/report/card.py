"""The model card: `README.md` with the YAML header that model hubs read."""

from __future__ import annotations

from typing import Any

import yaml

from deploynas.report.document import ReportFile
from deploynas.report.markdown import precision_rows, summary_rows, table_lines
from deploynas.report.numbers import ms


def card(report: ReportFile, triton: bool = False) -> str:
    shipped, data = report.shipped, report.data
    header: dict[str, Any] = {
        "library_name": "onnx",
        "pipeline_tag": "image-classification",
        "tags": ["deploynas", "onnx", "onnxruntime", "neural-architecture-search", "image-classification"],
        "datasets": [data["name"].partition(":")[0]],
        "metrics": ["accuracy"],
        "model-index": [
            {"name": report.title, "results": [_result(report, f.precision, f.accuracy) for f in report.files]}
        ],
    }
    budget = f" within a budget of {ms(report.budget_ms)}" if report.budget_ms is not None else ""
    return "\n".join(
        [
            "---",
            yaml.safe_dump(header, sort_keys=False, allow_unicode=True).strip(),
            "---",
            "",
            f"# {report.title}",
            "",
            f"An image classifier for {len(data['classes'])} classes, found by architecture search in the space "
            f"`{report.space}` ({report.space_size} networks) for the device `{report.device['name']}`: "
            f"{ms(shipped.latency_ms)} for a batch of {report.device['batch']}{budget}, measured whole on "
            f"{report.hardware.get('processor', 'the device')} with {report.device['threads']} thread(s).",
            "",
            *table_lines(("", "predicted", "measured", "limit"), summary_rows(report)),
            "",
            *table_lines(("file", "accuracy", "latency", "p95", "inputs/s", "size"), precision_rows(report)),
            "",
            "## Use",
            "",
            "```",
            "pip install onnxruntime numpy pillow",
            "python predict.py image.png",
            "```",
            "",
            "Preprocessing, labels, architecture and provenance are in the model's `metadata_props`. Any batch works.",
            *(
                ["", "`triton/` is a Triton model repository: `tritonserver --model-repository=triton`."]
                if triton
                else []
            ),
            "",
            "## Training and data",
            "",
            f"Weights inherited from a one-shot supernet and fine-tuned on {data['train_images']} images of "
            f"`{data['name']}`; accuracy is of {data['validation_images']} validation images, which the search used too"
            + (f", and of {data['test_images']} test images, which nothing used." if data["test_images"] else "."),
            "",
            "## Architecture",
            "",
            "timm's notation, block by block:",
            "",
            "```",
            report.architecture.replace(" | ", "\n"),
            "```",
            "",
            "`report.html` shows it block by block; `manifest.json` has the SHA-256 of everything and the lineage.",
            *(["", "## Limits", "", *(f"- {warning}" for warning in report.warnings)] if report.warnings else []),
            "",
        ]
    )


def _result(report: ReportFile, precision: str, accuracy: float) -> dict[str, Any]:
    name = report.data["name"].partition(":")[0]
    return {
        "task": {"type": "image-classification"},
        "dataset": {"name": name, "type": name, "split": "validation"},
        "metrics": [{"type": "accuracy", "value": round(accuracy, 6), "name": f"top-1, {precision}"}],
    }
