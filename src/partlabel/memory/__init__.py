"""Pseudo-labels on disk, and the rounds in which they are given."""

from partlabel.memory.rounds import Round, choose, quota
from partlabel.memory.store import LabelMemory, Tally

__all__ = ["LabelMemory", "Round", "Tally", "choose", "quota"]
