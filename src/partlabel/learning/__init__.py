"""Learning from partial labels: losses, methods, pseudo-labels, similarity of images.

Uses ``base``, ``images``, ``labels``, ``metrics`` and ``models``.
"""
