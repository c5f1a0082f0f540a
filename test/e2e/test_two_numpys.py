"""Sites of two versions of numpy compute one run: what is the same, and what is not.

The same are plan, charges, counts and files: integers and exact fractions.  Sums of floats may
differ in a last bit, and noise follows from what it covers (docs/faq.md), so maps are of the same
quality and not equal.  `make test-lower` gives another Python with the lowest numpy.
"""

import json
import os
import subprocess
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cape.simulation.transports import PARTY_PROGRAM, TOP, InProcess
from cape.simulation.ways import Play, Way, in_documents
from support import consortium as helper
from support.simulation import simulate

OTHER = os.environ.get("CAPE_OTHER_PYTHON", "")
pytestmark = pytest.mark.skipif(not OTHER, reason="CAPE_OTHER_PYTHON names no other Python")


class OneSiteElsewhere(InProcess):
    """Calls one site in a new process of the other Python."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        if party != "local1":
            return super().__call__(role, party, text)
        words = [OTHER, "-P", "-c", PARTY_PROGRAM, TOP, role]
        environment = self.own(party).environment(os.environ)
        done = subprocess.run(words, input=text, capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def elsewhere(play: Play) -> None:
    in_documents(play, nullcontext(OneSiteElsewhere(play.sites, play.work)))


@pytest.mark.parametrize("name", ["capegica", "capedjica", "capecontrast"])
def test_a_run_of_two_numpys_ends_with_the_same_promise_and_says_so(
    tmp_path: Path, name: str
) -> None:
    version = subprocess.run(
        [OTHER, "-c", "import numpy; print(numpy.__version__)"], capture_output=True, check=True
    )
    other = version.stdout.decode().strip()
    assert other != np.__version__
    data, settings = (
        helper.write_data(tmp_path / "data", computation=name),
        helper.settings_of(name),
    )
    run = partial(simulate, data, settings={**settings, "computation": name}, seed=3)
    alone = run(out=tmp_path / "alone")
    mixed = run(out=tmp_path / "mixed", find_way=lambda _: Way(play=elsewhere))
    said = [json.loads((folder / "results.json").read_text()) for folder in (alone, mixed)]
    promised = [json.loads((folder / "privacy.json").read_text()) for folder in (alone, mixed)]
    (note,) = (text for text in said[1]["warnings"] if "several versions of numpy" in text)
    assert f"numpy {other}: local1" in note
    assert not any("numpy" in text for text in said[0]["warnings"])
    assert {path.name for path in alone.iterdir()} == {path.name for path in mixed.iterdir()}
    for field in ("epsilon_spent", "epsilon_planned", "delta", "n_subjects", "n_sites"):
        assert said[0][field] == said[1][field], field
    assert promised[0]["ledger"] == promised[1]["ledger"]
