"""Ranges of settings, as types: a value outside is an error before a training starts."""

from typing import Annotated

from pydantic import Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Power = Annotated[float, Field(gt=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Epochs = Annotated[int, Field(ge=0)]
Softness = Annotated[float, Field(ge=0, lt=0.5)]
"""How far a smoothed label is from 0 or 1; at 0.5 it would carry no information."""
