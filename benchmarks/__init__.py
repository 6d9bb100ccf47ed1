"""Benchmarks of speed and memory: ``python -m benchmarks [NAME ...]``.

Each one compares partlabel with an alternative in the same run, on data that it generates, and
prints the results with their targets. ``alternatives``, ``completion`` and ``label_graph`` need a
label file, and are started by ``python -m benchmarks.NAME``. So are ``verified_labels``, which
generates a set like Open Images and compares methods on it, and ``caption_words``, which makes
labels of the words of captions.
"""
