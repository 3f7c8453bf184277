"""What every section of the spec is made of: the base class, and types that several share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

LARGEST_INT = 2**53
"""No count in a spec is larger: JSON readers and records hold whole numbers only up to here."""

FUNCTION = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
"""A function that the user names, `package.module:function`."""

Positive = Annotated[int, Field(ge=1, le=LARGEST_INT)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A part of the spec."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
