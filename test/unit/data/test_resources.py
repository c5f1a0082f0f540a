"""What reading takes of a computer: memory, disk, processors."""

from __future__ import annotations

import os

import pytest

from cape.data.resources import processors


def test_where_a_system_does_not_say_which_processors_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS has no `sched_getaffinity`."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()
