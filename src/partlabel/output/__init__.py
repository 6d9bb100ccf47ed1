"""What people look at or take along: tables on a terminal, the report, comparisons of methods,
exports, the demo, the review page.

Uses every room up to ``judging``.
"""
