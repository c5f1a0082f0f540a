"""Whose a file is: what paths say of people, sessions, runs and versions, and how far it is proved.

Nothing here opens a file of data.  `reading.py` is the one answer; everything else serves it.
"""
