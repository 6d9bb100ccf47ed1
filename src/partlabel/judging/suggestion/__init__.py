"""Which labels people should be asked for next.

How labels are chosen (``information``, ``posterior``, ``orderings``) needs no torch, so the review
page can choose as ``suggest`` does.
"""
