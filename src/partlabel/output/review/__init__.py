"""The review page: people check labels, their verdicts are kept, and a head learns from them.

Nothing here imports torch before the page has answered.
"""
