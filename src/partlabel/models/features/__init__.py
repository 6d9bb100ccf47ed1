"""Maps of the frozen part of a backbone, computed once per image and cached on disk."""

from partlabel.models.features.housekeeping import (
    cache_limit,
    list_stores,
    prune,
    read_size,
    usage,
)
from partlabel.models.features.maps import Bank, CachedMaps, cache_pixels, cached_maps
from partlabel.models.features.store import (
    MapStore,
    content_key,
    default_cache,
    open_store,
)

__all__ = [
    "Bank",
    "CachedMaps",
    "MapStore",
    "cache_limit",
    "cache_pixels",
    "cached_maps",
    "content_key",
    "default_cache",
    "list_stores",
    "open_store",
    "prune",
    "read_size",
    "usage",
]
