"""What people look at: tables on a terminal, the report, comparisons of methods.

Uses every room up to ``judging``.
"""
