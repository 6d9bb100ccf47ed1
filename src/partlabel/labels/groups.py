"""Images that belong together: near-duplicates, or those of one patient, camera or scene."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """The group of each image: no split of a run separates images of one group.

    Args:
        first: [n] the first row of each image's group; an image on its own is its own group.

    >>> groups = Groups.of_pairs(5, np.array([[4, 1], [1, 3]]))
    >>> groups.first.tolist(), groups.images, groups.groups
    ([0, 1, 2, 1, 1], 3, 1)
    """

    first: Rows

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def none(cls, images: int) -> "Groups":
        """Every image on its own."""
        return cls(np.arange(images))

    @classmethod
    def of_pairs(cls, images: int, pairs: Rows) -> "Groups":
        """The groups that pairs [m, 2] of rows make, directly or through others."""
        from scipy.sparse import csgraph  # takes a while to import

        ones = np.ones(len(pairs), dtype=np.int8)
        graph = sparse.coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(images, images))
        _, component = csgraph.connected_components(graph, directed=False)
        return cls.of_codes(np.asarray(component, dtype=np.int64))

    @classmethod
    def of_codes(cls, codes: Rows) -> "Groups":
        """Images with equal codes [n] belong together; a negative code is an image on its own."""
        own = np.where(codes < 0, codes.max(initial=0) + 1 + np.arange(len(codes)), codes)
        _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
        return cls(first[inverse])

    def joined(self, other: "Groups") -> "Groups":
        """Images belong together if they do in either, directly or through others."""
        rows = np.arange(len(self))
        pairs = [np.stack([rows, one.first], axis=1) for one in (self, other)]
        return Groups.of_pairs(len(self), np.concatenate(pairs))

    def part(self, rows: Rows) -> "Groups":
        """The groups of some of the images, as rows of these."""
        return Groups.of_codes(self.first[rows])

    def among(self, rows: Rows, images: int) -> "Groups":
        """The groups of all images, of which these are the groups of some rows."""
        first = np.arange(images)
        first[rows] = rows[self.first]
        return Groups.of_codes(first)

    @property
    def sizes(self) -> Rows:
        """[n] the number of images in each image's group."""
        return np.bincount(self.first, minlength=len(self))[self.first]

    @property
    def images(self) -> int:
        """The number of images that are not on their own."""
        return int((self.sizes > 1).sum())

    @property
    def groups(self) -> int:
        """The number of groups of more than one image."""
        return int((np.bincount(self.first) > 1).sum()) if len(self) else 0

    @property
    def units(self) -> int:
        """The number of groups, with those of one image."""
        return len(np.unique(self.first))
