"""Names that users choose from, where several rooms need them. Imports nothing, so help is fast."""

from typing import Literal

DEFAULT_BACKBONE = "tf_efficientnet_lite2"

Optimizer = Literal["sgd", "adam", "adamw", "rmsprop", "lbfgs"]
WHOLE_BATCH: Optimizer = "lbfgs"
"""The optimiser that takes all images as one batch."""

Schedule = Literal["constant", "step", "cosine", "onecycle", "plateau"]
