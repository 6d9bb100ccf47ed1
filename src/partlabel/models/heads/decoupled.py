"""One feature vector per class, and a graph network between them.

[1] Chen et al., Learning Semantic-Specific Graph Representation for Multi-Label Image Recognition,
    ICCV 2019.
[2] Chen et al., Structured Semantic Transfer for Multi-Label Recognition with Partial Labels,
    AAAI 2022.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from partlabel.base.ranges import Size
from partlabel.models.heads.informed import Informed


class PositionNorm(nn.BatchNorm1d):
    """Batch normalisation of the features of positions [n, channels].

    A single position has no statistics of its own: it is normalised by the running ones.
    """

    def forward(self, positions: Tensor) -> Tensor:
        """Features [n, channels] to normalised features [n, channels]."""
        if not self.training or len(positions) > 1:
            return super().forward(positions)
        return batch_norm(
            positions, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


class GatedGraph(nn.Module):
    """Gated message passing between the vectors of classes [1].

    In each step a class receives the sums of the vectors of linked classes, weighted by the links
    that go out and by those that come in, and gates decide how much of its own vector changes.

    Args:
        channels: width of the vectors.
        steps: number of steps.
    """

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.received = nn.Linear(2 * channels, 3 * channels)
        self.own = nn.Linear(channels, 2 * channels)
        self.reset = nn.Linear(channels, channels)

    def forward(self, state: Tensor, graph: Tensor) -> Tensor:
        """Vectors [B, C, channels] and a graph [C, C] to new vectors [B, C, channels]."""
        graph = graph.to(state.dtype)
        for _ in range(self.steps):
            messages = torch.cat([graph @ state, graph.T @ state], dim=2)
            to_update, to_reset, to_new = self.received(messages).chunk(3, dim=2)
            own_update, own_reset = self.own(state).chunk(2, dim=2)
            update = torch.sigmoid(to_update + own_update)
            kept = torch.sigmoid(to_reset + own_reset) * state
            state = (1 - update) * state + update * torch.tanh(to_new + self.reset(kept))
        return state


class PairScores(nn.Module):
    """How well two classes fit together in an image: one logit for each pair of classes [2].

    The logit is a product of the pair's own weights with ReLU(P f + Q g + b), where f and g are the
    feature vectors of the two classes.

    Args:
        classes: C.
        channels: width of the feature vectors.
    """

    pairs: Tensor

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        pairs = torch.triu_indices(classes, classes, 1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.of_first = nn.Linear(channels, channels)
        self.of_second = nn.Linear(channels, channels, bias=False)
        self.weight = nn.Parameter(torch.randn(pairs.shape[1], channels) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(pairs.shape[1]))

    def forward(self, features: Tensor) -> Tensor:
        """Feature vectors [B, C, channels] to logits [B, C (C - 1) / 2] of ``pairs``."""
        first, second = self.pairs
        joined = self.of_first(features)[:, first] + self.of_second(features)[:, second]
        return (torch.relu(joined) * self.weight).sum(dim=2) + self.bias


class Decoupled(Informed):
    """One feature vector per class by attention, gated message passing, one classifier each [1].

    Features are first reduced and normalised over the positions of a batch, as in the code of [2].
    Without that, the features of all images would have much in common, and large cosines. The
    attention of class c at a position with features f is the softmax over positions of
    a^T tanh(U f * V x_c), where x_c is the vector of the class. In [1] two linear layers follow the
    tanh; here they are one, which is the same function.

    The authors' code of [1] has features of width 2048 and an attention of width 1024; that of [2]
    has 1024 and 512. The smaller defaults are for frozen features and few labels.

    Args:
        features: D, channels of the feature map.
        classes: C, number of logits.
        width: width of the class vectors.
        channels: width of the feature vectors.
        joint: width of the attention.
        steps: number of steps of message passing.
        pairs: whether to also score pairs of classes.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        width: Size = 50,
        channels: Size = 128,
        joint: Size = 128,
        steps: Size = 3,
        *,
        pairs: bool = False,
    ) -> None:
        super().__init__(classes, width)
        self.shrink = nn.Linear(features, channels, bias=False)
        self.norm = PositionNorm(channels)
        self.of_position = nn.Linear(channels, joint, bias=False)
        self.of_class = nn.Linear(width, joint, bias=False)
        self.attend = nn.Linear(joint, 1, bias=False)  # a bias would not change the softmax
        self.passing = GatedGraph(channels, steps)
        self.combine = nn.Linear(2 * channels, channels)
        self.weight = nn.Parameter(torch.randn(classes, channels) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(classes))
        self.pair_scores = PairScores(classes, channels) if pairs else None

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to logits [B, C]."""
        return self.classify(self.decouple(maps))

    def decouple(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to one feature vector per class [B, C, channels]."""
        positions = self._positions(maps)
        return self._attention(positions) @ positions

    def classify(self, features: Tensor) -> Tensor:
        """Feature vectors [B, C, channels] to logits [B, C], after message passing."""
        passed = self.passing(features, self.graph)
        combined = torch.tanh(self.combine(torch.cat([passed, features], dim=2)))
        return (combined * self.weight).sum(dim=2) + self.bias

    def class_maps(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to attention maps [B, C, H, W].

        A value is the attention minus that of uniform attention, 1 / (H W).
        """
        weights = self._attention(self._positions(maps))
        return (weights - 1 / weights.shape[2]).view(*weights.shape[:2], *maps.shape[2:])

    def _positions(self, maps: Tensor) -> Tensor:
        """Feature maps [B, D, H, W] to features [B, H * W, channels] of positions."""
        positions: Tensor = self.shrink(maps.flatten(2).transpose(1, 2))
        normalised: Tensor = self.norm(positions.flatten(0, 1))
        return normalised.view_as(positions)

    def _attention(self, positions: Tensor) -> Tensor:
        """The weights [B, C, P] of positions [B, P, channels]; those of a class sum to 1."""
        joint = self.of_position(positions)[:, None] * self.of_class(self.vectors)[:, None]
        scores: Tensor = self.attend(torch.tanh(joint))[..., 0]
        return scores.softmax(dim=2)
