"""From labels and images to a run on disk: settings, the split, the training loop, checkpoints.

Uses every room up to ``learning``.
"""
