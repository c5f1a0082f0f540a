"""Synthetic studies whose truth is known: generators, layouts of files."""
