"""What a trained run knows: scores, figures, and unknown labels filled in with a guarantee.

Uses every room up to ``training``.
"""
