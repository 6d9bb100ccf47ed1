"""Errors, files, random numbers and terminal output for all other rooms. Uses none of them."""
