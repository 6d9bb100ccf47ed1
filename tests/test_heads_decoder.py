"""The label decoder equals a plain implementation of attention, and has its stated properties."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from partlabel.models.heads import HEADS, LabelDecoder, class_maps_of
from partlabel.models.heads.decoder import QueryAttention


def decoder(features: int = 12, classes: int = 5, **more: Any) -> LabelDecoder:
    torch.manual_seed(0)
    return LabelDecoder(features, classes, width=8, heads=2, **more).eval()


def attention(query: Tensor, keys: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, ...]:
    """Two heads of width 4, one image: the outputs [q, 8] and the mean weights [q, p]."""
    q, k, v = (
        x @ w.T + b
        for x, w, b in zip((query, keys, keys), weights.chunk(3), biases.chunk(3), strict=True)
    )
    outputs, attention_weights = [], []
    for head in range(2):
        columns = slice(4 * head, 4 * head + 4)
        softmax = torch.softmax(q[:, columns] @ k[:, columns].T / 2.0, dim=1)
        outputs.append(softmax @ v[:, columns])
        attention_weights.append(softmax)
    return torch.cat(outputs, dim=1), torch.stack(attention_weights).mean(dim=0)


def norm(layer: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    spread = (centred.square().mean(dim=1, keepdim=True) + layer.eps).sqrt()
    return centred / spread * layer.weight + layer.bias


def sines(rows: int, columns: int) -> Tensor:
    """Encodings of width 8 of the positions of a map, number by number."""
    code = np.zeros((rows, columns, 8))
    for row, column in np.ndindex(rows, columns):
        for first, place in ((0, row), (4, column)):
            for i in range(2):
                code[row, column, first + i] = np.sin(place / 10000 ** (i / 2))
                code[row, column, first + 2 + i] = np.cos(place / 10000 ** (i / 2))
    return torch.from_numpy(code)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("encoded", [False, True])
def test_equals_a_plain_implementation_of_attention(layers: int, encoded: bool) -> None:
    head = decoder(layers=layers, positions=encoded, feedforward=6).double()
    assert head.encoder.linear1.out_features == 6
    maps = torch.randn(1, 12, 3, 2, dtype=torch.float64)
    positions = torch.relu(head.shrink(maps[0].flatten(1).T))
    if encoded:
        positions = positions + sines(3, 2).flatten(0, 1)
    encoder = head.encoder
    mixed, _ = attention(
        positions, positions, encoder.self_attn.in_proj_weight, encoder.self_attn.in_proj_bias
    )
    positions = norm(encoder.norm1, positions + encoder.self_attn.out_proj(mixed))
    positions = norm(
        encoder.norm2, positions + encoder.linear2(torch.relu(encoder.linear1(positions)))
    )
    embedded: Tensor = head.queries
    assert len(head.layers) == layers
    for layer in head.layers:
        assert isinstance(layer, QueryAttention)
        attend = layer.attend
        gathered, weights = attention(
            embedded, positions, attend.in_proj_weight, attend.in_proj_bias
        )
        first, second = layer.norms
        assert isinstance(first, torch.nn.LayerNorm)
        assert isinstance(second, torch.nn.LayerNorm)
        attended = norm(first, embedded + attend.out_proj(gathered))
        embedded = norm(second, attended + layer.mlp(attended))
    with torch.no_grad():
        torch.testing.assert_close(head.embed(maps)[0], embedded)
        torch.testing.assert_close(head.class_maps(maps)[0].flatten(1), weights - 1 / 6)
        logits = torch.stack([embedded[j] @ head.weight[j] + head.bias[j] for j in range(5)])
        torch.testing.assert_close(head(maps)[0], logits)


def test_classes_are_independent_of_each_other() -> None:
    """Therefore the cost is linear in their number."""
    many = decoder(classes=7)
    few = decoder(classes=3)
    state = many.state_dict()
    for name in ("queries", "weight", "bias"):
        state[name] = state[name][:3]
    few.load_state_dict(state)
    maps = torch.randn(2, 12, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(few(maps), many(maps)[:, :3])


@pytest.mark.parametrize("side", [1, 3, 14])
def test_maps_can_have_any_size(side: int) -> None:
    head = decoder()
    maps = torch.randn(2, 12, side, side)
    with torch.no_grad():
        class_maps = head.class_maps(maps)
        assert head(maps).shape == (2, 5)
    assert class_maps.shape == (2, 5, side, side)
    np.testing.assert_allclose(class_maps.sum(dim=(2, 3)).numpy(), 0, atol=1e-5)
    assert class_maps_of(head) is not None


def test_the_width_is_limited_by_the_number_of_features() -> None:
    assert LabelDecoder(1280, 3).queries.shape == (3, 256)
    assert LabelDecoder(50, 3).queries.shape == (3, 48)
    assert LabelDecoder(2, 3).queries.shape == (3, 4)
    assert HEADS["decoder"] is LabelDecoder


def test_projected_embeddings_have_unit_length() -> None:
    head = decoder(projection=3)
    with torch.no_grad():
        lengths = head.project(head.embed(torch.randn(2, 12, 2, 2))).norm(dim=-1)
    np.testing.assert_allclose(lengths.numpy(), 1, rtol=1e-5)


@pytest.mark.parametrize("mlp", ["mlp.", "think."])
def test_weights_with_old_names_are_loaded(mlp: str) -> None:
    state = decoder().state_dict()
    old = {
        name.replace("layers.0.", "").replace("mlp.", mlp): value for name, value in state.items()
    }
    assert f"{mlp}0.weight" in old
    head = LabelDecoder(12, 5, width=8, heads=2)
    torch.nn.ModuleDict({"head": head}).load_state_dict({f"head.{n}": v for n, v in old.items()})
    for name, value in head.state_dict().items():
        assert torch.equal(value, state[name])
