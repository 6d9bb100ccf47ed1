"""The public names, and where they are defined. ``__init__.py`` reads this list."""

from partlabel import labels as labels
from partlabel import metrics as metrics
from partlabel.judging.labelling import complete as complete
from partlabel.judging.labelling import plan as plan
from partlabel.judging.labelling import suggest as suggest
from partlabel.judging.measuring import evaluate as evaluate
from partlabel.judging.measuring import predict as predict
from partlabel.labels import ABSENT as ABSENT
from partlabel.labels import PRESENT as PRESENT
from partlabel.labels import UNKNOWN as UNKNOWN
from partlabel.labels import LabelTable as LabelTable
from partlabel.labels import formats as formats
from partlabel.labels import inspection as inspection
from partlabel.labels import scenes as scenes
from partlabel.labels import simulate as simulate
from partlabel.labels.formats import read_labels as read_labels
from partlabel.labels.formats import write_labels as write_labels
from partlabel.learning import losses as losses
from partlabel.learning import methods as methods
from partlabel.learning import similarity as similarity
from partlabel.models import heads as heads
from partlabel.output.products import bench as bench
from partlabel.output.products import export as export
from partlabel.output.products import report as report
from partlabel.training.embed import embed as embed
from partlabel.training.run import load as load
from partlabel.training.train import train as train

__version__: str
__all__: list[str]
