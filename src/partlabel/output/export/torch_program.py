"""The target ``torch-export``: a program that PyTorch alone can run."""

import io
import json
from pathlib import Path

import torch
from torch import nn

from partlabel.base.errors import InputError
from partlabel.base.files import atomic_file
from partlabel.output.export.deployed import FromPixels, Package
from partlabel.output.export.onnx_model import quiet

ABOUT = "partlabel.json"
"""The extra file of a program that says what is to be known about it."""


def write_program(package: Package, path: Path, *, resized: bool = False) -> None:
    """Write a program, see ``torch.export``.

    Args:
        package: what to write.
        path: the file.
        resized: whether images are given in the size of the run, so that nothing is resized.
    """
    if path.suffix != ".pt2":
        raise InputError(f"{path}: a program of torch.export must be called something.pt2")
    dim = torch.export.Dim
    example = package.example()
    module: nn.Module = package.deployed
    shapes = {0: dim("batch")}
    about = package.about
    if not package.takes_features:
        module = FromPixels(package.deployed, about["size"], _mode(about["interpolation"]))
        example = example.permute(0, 2, 3, 1).contiguous()
        if not resized:
            shapes |= {1: dim("height"), 2: dim("width")}
            example = example.repeat(1, 2, 3, 1)  # sides that are equal to nothing else
    with quiet(), torch.no_grad():
        program = torch.export.export(module.eval(), (example,), dynamic_shapes=(shapes,))
        content = io.BytesIO()
        torch.export.save(program, content, extra_files={ABOUT: json.dumps(package.about)})
    with atomic_file(path) as stream:
        stream.write(content.getvalue())


def _mode(interpolation: str) -> str:
    if interpolation not in ("bicubic", "bilinear"):
        raise InputError(
            f"the backbone resizes images by '{interpolation}', which torch does not have; export "
            "it with --to onnx --resized"
        )
    return interpolation
