"""``python -m partlabel`` is the command ``partlabel``."""

from partlabel.cli import run

run()
