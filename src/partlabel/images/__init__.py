"""Image files: finding and decoding them, and the views of them for training. Uses ``base``."""
