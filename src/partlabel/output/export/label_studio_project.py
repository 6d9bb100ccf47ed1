"""The target ``label-studio``: tasks with predictions, and the labelling configuration."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from partlabel.base.files import atomic_group
from partlabel.labels import LabelTable
from partlabel.labels.formats.label_studio import CHOICES, LOCAL_FILES, UNKNOWN_CHOICE

_WORDS = {value: word for word, value in CHOICES.items()} | {0: UNKNOWN_CHOICE}


def config_path(path: Path) -> Path:
    """The file of the labelling configuration beside a file of tasks.

    >>> config_path(Path("tasks.json")).name
    'tasks.config.xml'
    """
    return path.with_name(f"{path.stem}.config.xml")


def write_project(
    table: LabelTable,
    probabilities: NDArray[np.float64],
    decisions: NDArray[np.int8],
    path: Path,
    version: str,
) -> list[Path]:
    """Write tasks, the most doubtful first, and the configuration of a project for them.

    Args:
        table: the labels that are known; they are suggested with a score of 1.
        probabilities: [n, C] that a class is present; NaN for an image that cannot be decoded.
        decisions: [n, C] in {1, 0, -1}
        path: the JSON file of the tasks.
        version: the name of the model in Label Studio.
    """
    known = table.dense()
    scored = np.where(np.isnan(probabilities), 0.5, probabilities)
    doubt = np.where(known == 0, np.minimum(scored, 1 - scored), 0.0).sum(axis=1)
    values = np.where(known != 0, known, decisions)
    scores = np.where(known != 0, 1.0, np.maximum(scored, 1 - scored))
    tasks = [
        _task(table, row, values[row], scores[row], (known[row] != 0).all(), version)
        for row in np.argsort(-doubt, kind="stable").tolist()
    ]
    paths = [path, config_path(path)]
    with atomic_group(paths) as (tasks_file, config_file):
        tasks_file.write_text(json.dumps(tasks, ensure_ascii=False, indent=1), encoding="utf-8")
        config_file.write_text(labelling_config(list(table.classes)), encoding="utf-8")
    return paths


def _task(
    table: LabelTable,
    row: int,
    values: NDArray[np.int8],
    scores: NDArray[np.float64],
    done: bool,
    version: str,
) -> dict[str, Any]:
    """One image: an annotation if all of its labels are known, else a prediction to check."""
    split = "" if table.splits is None else table.splits[row]
    data = {"image": LOCAL_FILES + quote(table.ids[row])} | ({"split": split} if split else {})
    result = [
        {
            "id": f"c{column}",
            "from_name": name,
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [_WORDS[int(value)]]},
            **({} if done else {"score": round(float(score), 6)}),
        }
        for column, (name, value, score) in enumerate(
            zip(table.classes, values, scores, strict=True)
        )
    ]
    if done:
        return {"data": data, "annotations": [{"result": result}]}
    score = round(float(scores.mean()), 6)
    return {
        "data": data,
        "predictions": [{"model_version": version, "score": score, "result": result}],
    }


def labelling_config(classes: Sequence[str]) -> str:
    """The configuration of a project: the image, and per class one choice of three."""
    choices = "".join(f"<Choice value={quoteattr(word)}/>" for word in (*CHOICES, UNKNOWN_CHOICE))
    controls = "\n".join(
        f"  <Header value={quoteattr(name)}/>\n"
        f'  <Choices name={quoteattr(name)} toName="image" choice="single" showInLine="true">'
        f"{choices}</Choices>"
        for name in classes
    )
    return f'<View>\n  <Image name="image" value="$image"/>\n{controls}\n</View>\n'
