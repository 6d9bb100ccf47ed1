"""Counter-based random numbers: uniform, uncorrelated, and the same on every machine."""

import numpy as np

from partlabel.base.randomness import key, keys, uniform


def test_numbers_are_the_same_on_every_machine() -> None:
    assert key(0, "partial") == 10088843918809210832
    names = keys(["a.jpg", "b.jpg"])
    assert np.array_equal(keys(["b.jpg"]), names[1:])
    assert np.array_equal(uniform(7, names)[1:], uniform(7, names[1:]))


def test_numbers_are_uniform_and_uncorrelated() -> None:
    images, classes = keys(f"{i}.jpg" for i in range(2000)), keys(f"c{j}" for j in range(20))
    draws = uniform(key(0, "test"), images[:, None], classes[None, :])
    assert draws.shape == (2000, 20)
    assert draws.min() >= 0
    assert draws.max() < 1
    histogram = np.histogram(draws, bins=50, range=(0, 1))[0]
    chi2 = ((histogram - 800) ** 2 / 800).sum()
    assert chi2 < 100  # 49 degrees of freedom: exceeded by chance 1 time in 10 million
    for other in (
        uniform(key(1, "test"), images[:, None], classes[None, :]),
        uniform(key(0, "other"), images[:, None], classes[None, :]),
        np.roll(draws, 1, axis=0),
        np.roll(draws, 1, axis=1),
    ):
        assert abs(np.corrcoef(draws.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(draws.size)
