"""The network and the losses of ssgrl, sst, hst and sarb in plain numpy, cell by cell."""

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


def numbers(module: torch.nn.Module) -> dict[str, Array]:
    """All weights of a module as arrays."""
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def linear(n: dict[str, Array], name: str, x: Array) -> Array:
    """A linear layer of a head, with or without a bias."""
    result: Array = x @ n[f"{name}.weight"].T + n.get(f"{name}.bias", 0)
    return result


def decoupled_by_hand(n: dict[str, Array], maps: Array) -> tuple[Array, Array]:
    """Feature vectors [B, C, d] and attention [B, C, P] of maps [B, D, H, W] in evaluation mode."""
    features, attention = [], []
    for image in maps:
        positions = linear(n, "shrink", image.reshape(len(image), -1).T)
        positions = (positions - n["norm.running_mean"]) / np.sqrt(n["norm.running_var"] + 1e-5)
        positions = positions * n["norm.weight"] + n["norm.bias"]
        weights = []
        for vector in n["vectors"]:
            joint = np.tanh(linear(n, "of_position", positions) * linear(n, "of_class", vector))
            scores = np.exp(joint @ n["attend.weight"][0])
            weights.append(scores / scores.sum())
        attention.append(weights)
        features.append(np.array(weights) @ positions)
    return np.array(features), np.array(attention)


def classified_by_hand(n: dict[str, Array], features: Array, steps: int) -> Array:
    """Logits [B, C] of feature vectors [B, C, d], class by class."""
    graph, logits = n["graph"], []
    for start in features:
        h, d = start, start.shape[1]
        for _ in range(steps):
            new = np.zeros_like(h)
            for c in range(len(h)):
                out = sum(graph[c, other] * h[other] for other in range(len(h)))
                back = sum(graph[other, c] * h[other] for other in range(len(h)))
                a = linear(n, "passing.received", np.concatenate([out, back]))
                u = linear(n, "passing.own", h[c])
                z, r = sigmoid(a[:d] + u[:d]), sigmoid(a[d : 2 * d] + u[d:])
                candidate = np.tanh(a[2 * d :] + linear(n, "passing.reset", r * h[c]))
                new[c] = (1 - z) * h[c] + z * candidate
            h = new
        o = np.tanh(linear(n, "combine", np.concatenate([h, start], axis=1)))
        logits.append((o * n["weight"]).sum(axis=1) + n["bias"])
    return np.array(logits)


def bce(logits: Array, labels: NDArray[Any]) -> float:
    """Cross-entropy of known labels, divided by their number."""
    return float(np.log1p(np.exp(-(labels * logits)[labels != 0])).mean())


def soft(logits: Array, targets: Array, counted: NDArray[Any]) -> float:
    costs = targets * np.log1p(np.exp(-logits)) + (1 - targets) * np.log1p(np.exp(logits))
    return float(costs[counted].mean())


def cosine(one: Array, other: Array) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def contrast_by_hand(features: Array, labels: NDArray[Any]) -> float:
    same, other = [], []
    for i, j in itertools.combinations(range(len(labels)), 2):
        for c in range(labels.shape[1]):
            if labels[i, c] and labels[j, c]:
                cos = cosine(features[i, c], features[j, c])
                if labels[i, c] == labels[j, c] == 1:
                    same.append(1 - cos)
                else:
                    other.append(1 + cos)
    return float(np.mean(same) + np.mean(other))


def pairs_by_hand(n: dict[str, Array], features: Array) -> dict[tuple[int, int], Array]:
    """The probability [B] of each pair of classes, both ways round."""
    result = {}
    pairs = itertools.combinations(range(features.shape[1]), 2)
    for number, (a, b) in enumerate(pairs):
        joined = linear(n, "pair_scores.of_first", features[:, a])
        joined = np.maximum(joined + linear(n, "pair_scores.of_second", features[:, b]), 0)
        logit = joined @ n["pair_scores.weight"][number] + n["pair_scores.bias"][number]
        result[a, b] = result[b, a] = sigmoid(logit)
    return result


def cooccurrence_by_hand(pairs: dict[tuple[int, int], Array], labels: NDArray[Any]) -> float:
    costs = []
    for a, b in itertools.combinations(range(labels.shape[1]), 2):
        for i, p in enumerate(pairs[a, b]):
            if labels[i, a] == labels[i, b] == 1:
                costs.append((1 - p) * -np.log(p))
            else:
                q = max(p - 0.05, 0.0)
                costs.append(q**2 * -np.log(1 - q))
    return float(np.mean(costs))


def within_by_hand(pairs: dict[tuple[int, int], Array], labels: NDArray[Any]) -> Array:
    scores = np.zeros(labels.shape)
    for i, c in np.ndindex(*labels.shape):
        others = [other for other in range(labels.shape[1]) if other != c and labels[i, other] == 1]
        scores[i, c] = np.mean([pairs[c, other][i] for other in others]) if others else 0
    return scores


def across_by_hand(features: Array, labels: NDArray[Any]) -> Array:
    """Mean cosines with the feature vectors of the batch that are known to be present."""
    scores = np.zeros(labels.shape)
    for i, c in np.ndindex(*labels.shape):
        present = np.flatnonzero(labels[:, c] == 1)
        if len(present):
            scores[i, c] = np.mean([cosine(features[i, c], features[j, c]) for j in present])
    return scores
