"""Attacks on partlabel: ``python -m attacks [NAME ...] [--seed S] [--count N] [--only K]``.

Each campaign makes random trials against the commands and checks that every one ends in one of the
ways that are documented. The number of a trial and the seed determine it, so a failed trial can be
repeated alone.
"""
