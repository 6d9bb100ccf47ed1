"""Measurements, each against its alternative in one run: ``python -m benchmarks [NAME ...]``.

They need no data but what they make, and print their targets beside the figures.
"""
