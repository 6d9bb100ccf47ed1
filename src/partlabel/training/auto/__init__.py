"""The method ``auto``: train several methods, compare them on held-out labels, combine the best."""
