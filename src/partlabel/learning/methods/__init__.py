"""All methods by name.

To add a method, add a file to this folder and a line to ``METHODS``.
"""

from partlabel.learning.method import Figure, Method, OnLogits, Predict, Stage, Task
from partlabel.learning.methods.apg_graph import ImageLaplacian
from partlabel.learning.methods.assume_negative import (
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
from partlabel.learning.methods.bce import Bce
from partlabel.learning.methods.cft import CategoryFineTuning
from partlabel.learning.methods.cnn_rnn import CnnRnn
from partlabel.learning.methods.em import EntropyMaximization, EntropyMinimization
from partlabel.learning.methods.em_apl import EmApl
from partlabel.learning.methods.en_cl import PredictionConsistency
from partlabel.learning.methods.en_scl import SpatialConsistency
from partlabel.learning.methods.gr import GeneralizedRobust
from partlabel.learning.methods.hst import HeterogeneousTransfer
from partlabel.learning.methods.imcl import InteractiveLearning
from partlabel.learning.methods.lac import LabelAwareConsistency
from partlabel.learning.methods.large_loss import (
    LargeLossCorrection,
    LargeLossRejection,
    PermanentCorrection,
)
from partlabel.learning.methods.latent_noise import LatentNoise
from partlabel.learning.methods.ml_gcn import GraphConvolution
from partlabel.learning.methods.partial_bce import PartialBce
from partlabel.learning.methods.ranking import Fast0Tag, Lsep, Wsabie
from partlabel.learning.methods.role import ExpectedPositive, Role, RoleLinearInit
from partlabel.learning.methods.sarb import RepresentationBlending
from partlabel.learning.methods.splc_csl import ClassAwareSelective, SelfPaced
from partlabel.learning.methods.sr import SaliencyRegularization
from partlabel.learning.methods.ssgrl import SemanticGraph
from partlabel.learning.methods.sst import StructuredTransfer

__all__ = ["METHODS", "Figure", "Method", "OnLogits", "Predict", "Stage", "Task"]

METHODS: dict[str, type[Method]] = {
    "bce": Bce,
    "partial-bce": PartialBce,
    "imcl": InteractiveLearning,
    "sr": SaliencyRegularization,
    "ml-gcn": GraphConvolution,
    "ssgrl": SemanticGraph,
    "sst": StructuredTransfer,
    "hst": HeterogeneousTransfer,
    "sarb": RepresentationBlending,
    "apg-graph": ImageLaplacian,
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
    "ll-r": LargeLossRejection,
    "ll-ct": LargeLossCorrection,
    "ll-cp": PermanentCorrection,
    "gr": GeneralizedRobust,
    "cft": CategoryFineTuning,
    "entmin": EntropyMinimization,
    "epr": ExpectedPositive,
    "role": Role,
    "role-li": RoleLinearInit,
    "en-cl": PredictionConsistency,
    "en-scl": SpatialConsistency,
    "em": EntropyMaximization,
    "em-apl": EmApl,
    "lac": LabelAwareConsistency,
}
