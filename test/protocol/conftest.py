"""Fixtures of the protocol tests."""

import pytest

from support import consortium


@pytest.fixture(scope="session")
def recording(tmp_path_factory):
    """A finished seeded run through documents; every exchange can be gone back to."""
    return consortium.record(tmp_path_factory.mktemp("recording"))
