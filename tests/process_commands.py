"""Several commands in one group of processes: a script that ``torchrun`` starts.

``torchrun --nproc-per-node 2 tests/process_commands.py '[["train", ...], ["evaluate", ...]]'``
"""

import json
import sys

from partlabel.base import launch
from partlabel.cli import main
from partlabel.cli.torchrun import write_to_log

if __name__ == "__main__":
    if launch.launched_rank():
        write_to_log()
    for words in json.loads(sys.argv[1]):
        assert main(words) == 0, words
