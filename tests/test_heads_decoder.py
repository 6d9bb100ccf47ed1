"""The label decoder against attention written out, and what it promises."""

import numpy as np
import pytest
import torch
from torch import Tensor

from partlabel.models.heads import HEADS, LabelDecoder, class_maps_of


def decoder(features: int = 12, classes: int = 5, **more: int) -> LabelDecoder:
    torch.manual_seed(0)
    return LabelDecoder(features, classes, width=8, heads=2, **more).eval()


def attention(query: Tensor, places: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, ...]:
    """Two heads of width 4, one image: what is gathered [q, 8] and the mean weights [q, p]."""
    q, k, v = (
        x @ w.T + b
        for x, w, b in zip((query, places, places), weights.chunk(3), biases.chunk(3), strict=True)
    )
    parts, looks = [], []
    for head in range(2):
        cut = slice(4 * head, 4 * head + 4)
        look = torch.softmax(q[:, cut] @ k[:, cut].T / 2.0, dim=1)
        parts.append(look @ v[:, cut])
        looks.append(look)
    return torch.cat(parts, dim=1), torch.stack(looks).mean(dim=0)


def norm(layer: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    spread = (centred.square().mean(dim=1, keepdim=True) + layer.eps).sqrt()
    return centred / spread * layer.weight + layer.bias


def test_is_what_attention_written_out_gives() -> None:
    head = decoder().double()
    maps = torch.randn(1, 12, 3, 2, dtype=torch.float64)
    places = torch.relu(head.shrink(maps[0].flatten(1).T))
    inner = head.encoder
    mixed, _ = attention(
        places, places, inner.self_attn.in_proj_weight, inner.self_attn.in_proj_bias
    )
    places = norm(inner.norm1, places + inner.self_attn.out_proj(mixed))
    places = norm(inner.norm2, places + inner.linear2(torch.relu(inner.linear1(places))))
    gathered, looks = attention(
        head.queries, places, head.attend.in_proj_weight, head.attend.in_proj_bias
    )
    first, second = head.norms
    assert isinstance(first, torch.nn.LayerNorm)
    assert isinstance(second, torch.nn.LayerNorm)
    seen = norm(first, head.queries + head.attend.out_proj(gathered))
    embedded = norm(second, seen + head.think(seen))
    with torch.no_grad():
        torch.testing.assert_close(head.embed(maps)[0], embedded)
        torch.testing.assert_close(head.class_maps(maps)[0].flatten(1), looks - 1 / 6)
        logits = torch.stack([embedded[j] @ head.weight[j] + head.bias[j] for j in range(5)])
        torch.testing.assert_close(head(maps)[0], logits)


def test_classes_do_not_see_each_other() -> None:
    """Of which follows that cost is linear in their number."""
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
def test_any_size_of_map(side: int) -> None:
    head = decoder()
    maps = torch.randn(2, 12, side, side)
    with torch.no_grad():
        looks = head.class_maps(maps)
        assert head(maps).shape == (2, 5)
    assert looks.shape == (2, 5, side, side)
    np.testing.assert_allclose(looks.sum(dim=(2, 3)).numpy(), 0, atol=1e-5)
    assert class_maps_of(head) is not None


def test_the_width_suits_the_features() -> None:
    assert LabelDecoder(1280, 3).queries.shape == (3, 256)
    assert LabelDecoder(50, 3).queries.shape == (3, 48)
    assert LabelDecoder(2, 3).queries.shape == (3, 4)
    assert HEADS["decoder"] is LabelDecoder


def test_projected_embeddings_have_unit_length() -> None:
    head = decoder(projection=3)
    with torch.no_grad():
        sizes = head.project(head.embed(torch.randn(2, 12, 2, 2))).norm(dim=-1)
    np.testing.assert_allclose(sizes.numpy(), 1, rtol=1e-5)
