"""What was gained, at the top of the page: a sentence, a verdict, and the networks that were compared."""

from __future__ import annotations

from html import escape

from deploynas.report.document import ReportFile
from deploynas.report.gain_words import ONE_SHOT, gain_columns, gain_rows, headline, scale_words, verdict
from deploynas.report.page import section, table


def gain_section(report: ReportFile) -> str:
    gain = report.gain
    if gain is None:
        return ""
    said = verdict(report)
    tables = [table(gain_columns(made), gain_rows(gain, made)) for made in (gain.fine_tuned, gain.one_shot) if made]
    note = (
        f"{ONE_SHOT} All latencies here were measured on {report.device.name} in one interleaved run. Random networks "
        "draw every decision uniformly."
    )
    if report.joint_scale is not None:
        note += f" {scale_words(report)}."
    return section(
        "What was gained",
        f'<div class="told"><div><p class="lead">{escape(headline(report))}.</p>',
        f"<p>{escape(said)}.</p>" if said else "",
        f"</div><div>{''.join(tables)}</div></div>",
        f'<p class="note">{escape(note)}</p>',
        kind="gain",
    )
