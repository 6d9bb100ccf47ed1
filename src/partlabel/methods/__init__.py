"""Methods by name. A new one is a file here and a line in ``METHODS``."""

from partlabel.methods.assumed import (
    AssumeNegative,
    Asymmetric,
    DownWeighted,
    Focal,
    LabelSmoothing,
    NegativeLabelSmoothing,
    WeakAssumeNegative,
    WeightNorm1,
    WeightNorm2,
)
from partlabel.methods.base import WHOLE_BATCH, Method, Predict, Stage, Task
from partlabel.methods.bce import Bce
from partlabel.methods.em import EntropyMaximization, EntropyMinimization
from partlabel.methods.em_apl import EmApl
from partlabel.methods.expected import ExpectedPositive, Role, RoleLinearInit
from partlabel.methods.imcl import InteractiveLearning
from partlabel.methods.lac import LabelAwareConsistency
from partlabel.methods.noise import LatentNoise
from partlabel.methods.partial_bce import PartialBce
from partlabel.methods.ranking import Fast0Tag, Lsep, Wsabie
from partlabel.methods.recurrent import CnnRnn
from partlabel.methods.saliency import SaliencyRegularization
from partlabel.methods.selective import ClassAwareSelective, SelfPaced
from partlabel.methods.spatial import SpatialConsistency

__all__ = ["METHODS", "WHOLE_BATCH", "Method", "Predict", "Stage", "Task"]

METHODS: dict[str, type[Method]] = {
    "bce": Bce,
    "partial-bce": PartialBce,
    "imcl": InteractiveLearning,
    "sr": SaliencyRegularization,
    "lsep": Lsep,
    "wsabie": Wsabie,
    "fast0tag": Fast0Tag,
    "latent-noise": LatentNoise,
    "cnn-rnn": CnnRnn,
    "an": AssumeNegative,
    "dw": DownWeighted,
    "wan": WeakAssumeNegative,
    "l1r": WeightNorm1,
    "l2r": WeightNorm2,
    "ls": LabelSmoothing,
    "n-ls": NegativeLabelSmoothing,
    "focal": Focal,
    "asl": Asymmetric,
    "splc": SelfPaced,
    "csl": ClassAwareSelective,
    "entmin": EntropyMinimization,
    "epr": ExpectedPositive,
    "role": Role,
    "role-li": RoleLinearInit,
    "en-scl": SpatialConsistency,
    "em": EntropyMaximization,
    "em-apl": EmApl,
    "lac": LabelAwareConsistency,
}
