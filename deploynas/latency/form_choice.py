"""Which forms of operators a device chose, and what it was chosen by: a record in the latency table."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from deploynas.graph import DEFAULT_FORMS, OperatorForms


class FormTrial(BaseModel):
    """One operation in another form than the default."""

    operation: str
    form: str
    networks: int  # that have the operation
    pairs: int = 0
    ratio: float | None = None  # of the default's latency; None where the provider cannot run it
    interval: tuple[float, float] | None = None  # 95 %; None where there are too few pairs for one
    verdict: Literal["faster", "not faster", "cannot run"]


class FormChoice(BaseModel):
    """What was chosen, and what was measured for it: nothing for tables of earlier versions."""

    chosen: OperatorForms = DEFAULT_FORMS
    trials: list[FormTrial] = []
