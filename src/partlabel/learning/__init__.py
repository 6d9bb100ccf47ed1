"""How to learn from partial labels: losses, methods, pseudo-labels, similarities.

Uses ``base``, ``images``, ``labels``, ``metrics`` and ``models``.
"""
