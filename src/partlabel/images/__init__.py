"""Image files: found, decoded, and turned into the views that training sees. Uses ``base``."""
