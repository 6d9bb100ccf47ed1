"""What a budget allows: a number of trainings, and epochs of the backbone if it is trained too.

Both are counted, and the clock has no part in it, so that a training can be repeated exactly.
"""

_TRAININGS = {"small": 24, "medium": 120, "large": 300}
_EPOCH = 20  # trainings of a budget for each of which the backbone is trained for an epoch


def trainings_of(budget: str) -> int:
    """The number of trainings of heads.

    >>> trainings_of("small"), trainings_of("7")
    (24, 7)
    """
    return _TRAININGS.get(budget) or int(budget)


def backbone_epochs(budget: str) -> int:
    """How many epochs the backbone is trained for, at least one.

    >>> [backbone_epochs(budget) for budget in ("7", "small", "medium", "large")]
    [1, 1, 6, 15]
    """
    return max(1, trainings_of(budget) // _EPOCH)
