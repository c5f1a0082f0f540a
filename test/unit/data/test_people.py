"""The natural order of names."""

from __future__ import annotations

from cape.data.people import natural_key


def test_numbers_in_names_count_by_their_value():
    assert sorted(["b10", "b9", "B1", "b"], key=natural_key) == ["b", "B1", "b9", "b10"]
    assert sorted(["b", "2", "a", "10"], key=natural_key) == ["2", "10", "a", "b"]
