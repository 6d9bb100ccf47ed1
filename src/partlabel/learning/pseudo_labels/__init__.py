"""Pseudo-labels: where they are stored, and the rounds in which they are given."""

from partlabel.learning.pseudo_labels.memory import LabelMemory, Tally
from partlabel.learning.pseudo_labels.round import Round, choose, quota

__all__ = ["LabelMemory", "Round", "Tally", "choose", "quota"]
