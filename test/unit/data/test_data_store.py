"""The folder of a store: who may use it, what it says of itself, and that it can be emptied."""

from __future__ import annotations

import pytest

from cape.data.data_store import DataStore, content_of


def test_a_store_counts_what_it_holds_and_is_empty_once_cleared(tmp_path):
    store = DataStore.open(tmp_path / "deep" / "store")
    assert store is not None
    assert store.size() == (0, 0)
    store.put("a.facts", b"{}")
    assert store.get("a.facts") == b"{}"
    assert store.size()[0] == 1
    assert store.size()[1] > 2
    store.clear()
    again = DataStore.open(tmp_path / "deep" / "store")
    assert again is not None
    assert again.size() == (0, 0)
    assert again.get("a.facts") is None


def test_an_entry_under_another_name_is_none(tmp_path):
    store = DataStore.open(tmp_path)
    if store is None:  # a folder that others may read is none
        tmp_path.chmod(0o700)
        store = DataStore.open(tmp_path)
    assert store is not None
    store.put("a.facts", b"{}")
    (tmp_path / "entries" / "a.facts").rename(tmp_path / "entries" / "b.facts")
    assert store.get("b.facts") is None


@pytest.mark.parametrize("place", ["file", "others"])
def test_where_no_place_can_be_written_there_is_no_store(tmp_path, place):
    folder = tmp_path / "store"
    if place == "file":
        folder.write_text("")
    else:
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    assert DataStore.open(folder) is None


def test_a_new_file_has_no_content_yet_and_two_of_the_same_samples_are_told_apart(tmp_path):
    store = DataStore.open(tmp_path / "store")
    assert store is not None
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(bytes(10**6))
    changed = bytearray(10**6)
    changed[100_000] = 1  # between two samples
    second.write_bytes(changed)
    assert store.content(first) == ""
    from cape.data.data_store import stamp_of

    store.learn(first, stamp_of(first), content_of(first))
    assert store.content(first) == content_of(first)
    assert store.content(second) == content_of(second) != content_of(first)
