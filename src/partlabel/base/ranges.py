"""Ranges of settings, as types: what is outside is refused before a training begins."""

from typing import Annotated

from pydantic import Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Epochs = Annotated[int, Field(ge=0)]
Softness = Annotated[float, Field(ge=0, lt=0.5)]
"""Of a smoothed label: at a half there is nothing left of it."""
