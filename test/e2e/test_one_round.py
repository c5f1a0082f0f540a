"""What one `iterate` round of a site does: everything once.

The round is that of `local.py`: the border is called with the engine's document, in this process.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cape
from cape.engines.coinstac import computation as stdio
from cape.privacy import accounting
from cape.protocol import phases
from cape.site.places import SitePlaces
from support import consortium as helper

MOST_MODULES = 27
"""As many as a reader follows through one round."""
HOME = str(Path(cape.__file__).parent)
SITE = "local0"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return helper.record(tmp_path_factory.mktemp("recording"))


@pytest.fixture
def answer(recording, tmp_path):
    """Return a function that answers a round, with nothing left in memory of other rounds."""
    engine = recording.at(("iterate", 2), tmp_path / "work")
    own = SitePlaces(policy=engine.work / SITE / "site-policy.toml")
    text = engine.document(SITE, engine.input)
    document = stdio.parse_document(text)
    phases._bind.cache_clear()
    accounting._largest_mu.cache_clear()
    return lambda: stdio.encode_response(stdio.run("local", document, own))


def functions_called(action: Any) -> Counter[tuple[str, str]]:
    """Count calls of our functions by module file and name, module bodies and lambdas included."""
    calls: Counter[tuple[str, str]] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(HOME):
            calls[os.path.relpath(name, HOME), frame.f_code.co_name] += 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_a_round_does_everything_once(answer) -> None:
    """From the decoded request to the encoded reply, imports done.

    A module is entered when one of its functions, methods or comprehensions runs; the body of a
    module that is imported on the way counts too.
    """
    calls = functions_called(answer)
    once = {
        ("protocol/phases.py", "check_table"): "the phase table is built once",
        ("protocol/phases.py", "accept"): "a broadcast is accepted once",
        ("protocol/phases.py", "respond"): "the round is answered once",
        ("protocol/secure_sum.py", "clipped_sum"): "the subjects are asked once",
    }
    assert {what: calls[key] for key, what in once.items()} == dict.fromkeys(once.values(), 1)
    assert calls["privacy/accounting.py", "_largest_mu"] <= 1
    modules = sorted({module for module, _ in calls})
    assert len(modules) <= MOST_MODULES, modules
