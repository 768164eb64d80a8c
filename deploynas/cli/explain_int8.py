"""`deploynas explain BUNDLE --int8`: what 8 bits cost and bring, part by part, as `export --int8 mixed` measured it."""

from __future__ import annotations

from pathlib import Path

from deploynas.cli.console import print_json, print_table, say
from deploynas.errors import InputError


def explain(bundle: Path, as_json: bool) -> None:
    from deploynas.report.document import ReportFile
    from deploynas.report.int8_words import (
        ASSIGNMENT_COLUMNS,
        PART_COLUMNS,
        assignment_rows,
        mixed_note,
        part_rows,
        ranked,
    )

    report = ReportFile.load(bundle)
    record = report.assignments
    if record is None:
        raise InputError(
            f"{bundle}: its report does not tell parts apart in 8 bits",
            hint="`deploynas export … --int8 mixed` measures them",
        )
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    print_table(PART_COLUMNS, part_rows(ranked(record)), "What 8 bits hurt most comes first")
    print_table(ASSIGNMENT_COLUMNS, assignment_rows(record), "From fp32 to 8 bits, as measured")
    say(mixed_note(record))
