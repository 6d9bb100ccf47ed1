"""The target ``onnx``: one file from pixels to decisions, for any ONNX runtime."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from partlabel.base.errors import InputError, JobError
from partlabel.base.files import atomic_file
from partlabel.output.export.deployed import OUTPUTS, Package

OPSET = 18  # the first with an antialiased Resize
_MODES = {"bicubic": "cubic", "bilinear": "linear"}
_TOLERANCE = 1e-4  # between the file in onnxruntime and the model in torch


def write_onnx(package: Package, path: Path, *, resized: bool = False) -> float:
    """Write a model, and compare it with the original in onnxruntime.

    Args:
        package: what to write.
        path: the file.
        resized: whether images are given in the size of the run, so that nothing is resized.

    Returns:
        The largest difference of a probability.
    """
    model = _convert(package)
    if not package.takes_features:
        _add_front(model.graph, package.about, resized=resized)
    for name, value in package.about.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        model.metadata_props.add(key=name, value=text)
    model.producer_name = f"partlabel {package.about['partlabel']}"
    content = model.SerializeToString()
    difference = _compare(package, content)
    with atomic_file(path) as stream:
        stream.write(content)
    return difference


def _convert(package: Package) -> Any:
    """The model from resized images, channels first, or from features, as an ONNX model."""
    name = "features" if package.takes_features else "images"
    batch = {0: torch.export.Dim("batch")}
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            package.deployed,
            (package.example(),),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=[name],
            output_names=list(OUTPUTS),
            dynamic_shapes={"inputs": batch},
        )
    assert program is not None
    return program.model_proto


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of converters about themselves, and attention in its plain form."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _add_front(graph: Any, about: dict[str, Any], *, resized: bool) -> None:
    """Make pixels [B, H, W, 3] the input of a graph, instead of images [B, 3, S, S]."""
    from onnx import TensorProto, helper

    size, mode = about["size"], _MODES.get(about["interpolation"])
    sides = [size, size] if resized else ["height", "width"]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", *sides, 3])
    images = graph.input[0].name
    turn = helper.make_node(
        "Transpose", ["pixels"], [images if resized else "channels_first"], perm=[0, 3, 1, 2]
    )
    front = [turn]
    if not resized:
        if mode is None:
            raise InputError(
                f"the backbone resizes images by '{about['interpolation']}', which ONNX does not "
                "have; add --resized and resize images before they are given to the model"
            )
        graph.initializer.append(
            helper.make_tensor("side_lengths", TensorProto.INT64, [2], [size, size])
        )
        # on uint8, onnxruntime computes this as Pillow does; at the run's own size it does nothing
        front += [
            helper.make_node("Shape", ["channels_first"], ["batch_channels"], start=0, end=2),
            helper.make_node("Concat", ["batch_channels", "side_lengths"], ["sizes"], axis=0),
            helper.make_node(
                "Resize",
                ["channels_first", "", "", "sizes"],
                [images],
                mode=mode,
                antialias=1,
                cubic_coeff_a=-0.5,
                exclude_outside=1,
                coordinate_transformation_mode="half_pixel",
            ),
        ]
    nodes = [*front, *graph.node]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.append(pixels)


def _compare(package: Package, content: bytes) -> float:
    """The largest difference of a probability between a file and the model, on random inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    example = package.example(3)
    model_input = example if package.takes_features else example.permute(0, 2, 3, 1).contiguous()
    answers = session.run(list(OUTPUTS), {session.get_inputs()[0].name: model_input.numpy()})
    with torch.no_grad():
        own: tuple[Tensor, ...] = package.deployed(example)
    difference = float(np.abs(answers[0] - own[0].numpy()).max())
    if not difference < _TOLERANCE:
        raise JobError(
            f"the probabilities of the ONNX file differ from the model's by {difference:.2g}; "
            "nothing was written"
        )
    return difference


def read_about(content: bytes | Path) -> dict[str, Any]:
    """What an exported file says about itself, with the types that it was written from."""
    import onnx

    source = io.BytesIO(content) if isinstance(content, bytes) else content
    model = onnx.load(source, load_external_data=False)
    about = {}
    for entry in model.metadata_props:
        try:
            about[entry.key] = json.loads(entry.value)
        except ValueError:
            about[entry.key] = entry.value
    return about
