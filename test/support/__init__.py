"""What tests of several folders share; `test` is on the path of imports (pyproject.toml).

``consortium``       small data, settings and seeded runs of every computation
``tiny``             the smallest computation there is, for the protocol alone
``recorder``         whole runs on record; ``carriers`` and ``engines`` carry their documents
                     elsewhere, ``scanner`` looks for what must not be in them
``wiretap``          what an adversary hears; ``auditor`` turns it into a bound of mu
``report_example``   an invented result
"""

import sys


def say(figures: str) -> None:
    """Show figures of a test with ``pytest -s`` or ``-rP``, and if it fails."""
    sys.stdout.write(figures + "\n")
