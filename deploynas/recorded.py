"""Numbers as a generated file may have them: a time that is not positive, or not finite, is refused where it is read.

The models of files use these types, so that no command meets a latency of 0 or NaN later and takes it for good.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# of an interval that few measurements know nothing about, the upper end may be infinite until it is written
Uncertainty = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
