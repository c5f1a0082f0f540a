"""The person, session, run and version of a file by its path, and the level of evidence.

No module here opens a file of data.  `reading.py` gives the answer; the others serve it.
"""
