"""The settings that ``auto`` takes; all others it chooses itself."""

from collections.abc import Mapping
from typing import Any

from partlabel.base.errors import InputError
from partlabel.training.settings import AUTO, Panel, Settings, panel_of

_OWN = ("method", "budget", "folds", "single", "seed")
_NETWORK = ("backbone", "weights", "frozen", "size", "mirror", "precision")

SUMMARY = "Tries several of the methods below on frozen features, and combines the best."
DESCRIPTION = """Tries several methods on the features of a frozen backbone, and combines the best.

Candidates are compared on a fully labelled split 'holdout', or by cross-fitting: each part of the
training images is scored by models that were trained on the others. The result is one run.

    --budget small|medium|large|N   the number of trainings: 24, 120, 300 or N
    --folds K                       the number of parts
    --single                        keep the best candidate only
    --unfreeze last|all             then train the backbone with the best method, from its linear
                                    head, for an epoch per 20 trainings of the budget; kept only if
                                    the validation mAP is higher"""

AUTO_SETTINGS = [
    name
    for name, field in Settings.model_fields.items()
    if name in (*_OWN, *_NETWORK) or panel_of(field) is Panel.IMAGES
]


def check_auto(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training by ``auto``; an error for those that it chooses itself."""
    values = {
        name: value
        for name, value in arguments.items()
        if value is not None and value is not False and value != {}
    }
    for name in values:
        if name not in AUTO_SETTINGS:
            option = {"options": "--set", "head_options": "--head-set"}.get(name, f"--{name}")
            raise InputError(
                f"{option.replace('_', '-')} has no effect with --method auto, which chooses it; "
                "name another --method to set it"
            )
    frozen = arguments.get("frozen")
    if frozen in (None, True):
        frozen = "all"
    elif frozen is False:
        frozen = "nothing"
    if "mirror" in values and frozen != "all":
        raise InputError("--mirror has no effect with --unfreeze, which trains the backbone")
    if "val" in values and "val_split" in values:
        raise InputError("--val has no effect with --val-split")
    if isinstance(values.get("budget"), int):  # a number in a YAML file
        values["budget"] = str(values["budget"])
    # a class that is present in no training image is left out, and named
    return {**values, "method": AUTO, "frozen": frozen, "drop_empty": True}
