"""Counter-based numbers: uniform, independent of each other, and the same everywhere."""

import numpy as np

from partlabel.base.randomness import key, keys, uniform


def test_the_same_everywhere() -> None:
    assert key(0, "partial") == 10088843918809210832
    names = keys(["a.jpg", "b.jpg"])
    assert np.array_equal(keys(["b.jpg"]), names[1:])
    assert np.array_equal(uniform(7, names)[1:], uniform(7, names[1:]))


def test_uniform_and_uncorrelated() -> None:
    images, classes = keys(f"{i}.jpg" for i in range(2000)), keys(f"c{j}" for j in range(20))
    draw = uniform(key(0, "test"), images[:, None], classes[None, :])
    assert draw.shape == (2000, 20)
    assert draw.min() >= 0
    assert draw.max() < 1
    histogram = np.histogram(draw, bins=50, range=(0, 1))[0]
    chi2 = ((histogram - 800) ** 2 / 800).sum()
    assert chi2 < 100  # 49 degrees of freedom: 1 in 10 million
    for other in (
        uniform(key(1, "test"), images[:, None], classes[None, :]),
        uniform(key(0, "other"), images[:, None], classes[None, :]),
        np.roll(draw, 1, axis=0),
        np.roll(draw, 1, axis=1),
    ):
        assert abs(np.corrcoef(draw.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(draw.size)
