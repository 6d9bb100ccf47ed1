"""The target ``hub``: a folder in the form of the Hugging Face hub, with a model card."""

import json
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader
from safetensors.torch import save
from torch import Tensor, nn

from partlabel.base.files import atomic_folder
from partlabel.models import Classifier
from partlabel.models.backbones.networks import config_of, size_argument
from partlabel.output.export.deployed import Package, in_words
from partlabel.output.export.timm_network import as_timm, linear_layer
from partlabel.output.export.torch_program import write_program
from partlabel.output.markup import escape_markdown

PROGRAM = "model.pt2"


def write_hub(package: Package, folder: Path) -> str:
    """Write config.json, model.safetensors and README.md; returns what timm can read of it.

    A model that is no timm network, or has another head than a linear one, is also written as a
    program of torch.export.
    """
    network = as_timm(package.model)
    whole = network is not None and linear_layer(package.model) is not None
    with atomic_folder(folder) as temporary:
        config = _config(package, network, whole=whole)
        (temporary / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        state = (package.model if network is None else network).state_dict()
        (temporary / "model.safetensors").write_bytes(save(_contiguous(state), {"format": "pt"}))
        if not whole:
            write_program(package, temporary / PROGRAM)
        text = model_card(package, folder.name, readable=network is not None, whole=whole)
        (temporary / "README.md").write_text(text, encoding="utf-8")
    if whole:
        return f"timm.create_model('local-dir:{folder}', pretrained=True) gives its logits"
    backbone = "timm reads the backbone; " if network is not None else ""
    return f"{backbone}{PROGRAM} is the whole model, for torch.export.load"


def _contiguous(state: dict[str, Tensor]) -> dict[str, Tensor]:
    # a format of its own in memory, such as channels last, is not kept in a file
    return {name: value.contiguous().clone() for name, value in state.items()}


def _config(package: Package, network: nn.Module | None, *, whole: bool) -> dict[str, Any]:
    """The content of config.json, with what timm needs if it can read the folder."""
    about = package.about
    if network is None:
        return {"library_name": "partlabel", "partlabel": about}
    model, classes = package.model, about["classes"]
    config = config_of(about["backbone"])
    return {
        "architecture": about["backbone"].partition(".")[0],
        "num_classes": len(classes) if whole else 0,
        "num_features": int(getattr(network, "num_features", model.backbone.channels)),
        **({"label_names": classes} if whole else {}),
        "model_args": size_argument(about["backbone"], about["size"]),
        "pretrained_cfg": {
            "input_size": [3, about["size"], about["size"]],
            "fixed_input_size": bool(config.get("fixed_input_size")),
            "interpolation": about["interpolation"],
            "crop_pct": 1.0,
            "crop_mode": "squash",
            **_normalisation(model),
            "num_classes": len(classes) if whole else 0,
            "first_conv": config.get("first_conv"),
            "classifier": config.get("classifier"),
            "license": config.get("license"),
        },
        "partlabel": about,
    }


def _normalisation(model: Classifier) -> dict[str, list[float]]:
    mean, std = (
        torch.round(buffer.flatten() / 255, decimals=6).tolist()
        for buffer in (model.backbone.mean, model.backbone.std)
    )
    return {"mean": mean, "std": std}


def model_card(package: Package, name: str, *, readable: bool, whole: bool) -> str:
    """README.md of the folder: data, method, figures, guarantees, limits.

    Args:
        package: what is written.
        name: of the folder.
        readable: whether timm can read the folder.
        whole: whether timm gives the logits of the model, not only features.
    """
    templates = Environment(
        loader=PackageLoader("partlabel.output.export", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return templates.get_template("card.md.j2").render(
        about=package.about,
        name=name,
        readable=readable,
        whole=whole,
        program=PROGRAM,
        guarantee=in_words(package.about),
        rows=_rows(package.about),
    )


def _rows(about: dict[str, Any]) -> list[dict[str, str]]:
    """The table of classes of a model card."""
    columns = ("classes", "thresholds", "present_from", "absent_to", "tests")
    rows = []
    for name, threshold, high, low, tests in zip(*(about[c] for c in columns), strict=True):
        present, absent = tests["present"], tests["absent"]
        tested = about["guarantee"] != "none"
        rows.append(
            {
                "name": escape_markdown(name),
                "threshold": f"{threshold:.3f}",
                "present": f"{high:.3f}" if present or not tested else "never",
                "absent": f"{low:.3f}" if absent or not tested else "never",
                "tested": ", ".join(
                    f"{side}: {test['right']:,} of {test['answers']:,} right"
                    + ("" if test["alone"] else " (several classes together)")
                    for side, test in tests.items()
                    if test
                )
                or "none",
            }
        )
    return rows
