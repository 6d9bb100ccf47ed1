"""Errors, files, random numbers, the terminal: what every other room uses. Uses none itself."""
