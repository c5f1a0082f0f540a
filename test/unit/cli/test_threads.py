"""How many threads the products of a command take.

Belongs to `cape/cli/__init__.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@pytest.mark.parametrize(
    ("said", "expected"), [({}, "1 -"), ({NAMES[0]: "3"}, "3 -"), ({NAMES[1]: "2"}, "- 2")]
)
def test_threads_of_products_are_one_unless_somebody_says_how_many(said, expected):
    code = (
        "import os; from cape.cli import main; main(['--version'])\n"
        f"print(*(os.environ.get(name, '-') for name in {NAMES}))"
    )
    shell = {name: text for name, text in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**shell, **said}, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == expected
