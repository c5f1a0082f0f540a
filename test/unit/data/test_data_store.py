"""The folder of a store: who may use it, what it says of itself, and that it can be emptied."""

import errno
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cape import cli
from cape.data import data_store
from cape.data.data_store import DataStore, KeptBases, marks_of
from cape.settings.resolved import BasisKind
from cape.space import public_basis
from cape.space.feature_space import FeatureSpace


def test_a_store_counts_what_it_holds_and_is_empty_once_cleared(tmp_path):
    store = DataStore.open(tmp_path / "deep" / "store")
    assert store.size() == (0, 0)
    (tmp_path / "deep" / "store" / "of somebody else").write_text("stays")
    store.put("a", "key", [np.arange(3.0)], {"facts": 1})
    stored = store.get("a", "key")
    assert (stored.note, stored.arrays[0].tolist()) == ({"facts": 1}, [0.0, 1.0, 2.0])
    assert store.get("a", "another key") is None
    held = store.size()
    assert held == (1, (tmp_path / "deep" / "store" / "entries" / "a").stat().st_size)
    assert store.clear() == held
    again = DataStore.open(tmp_path / "deep" / "store")
    assert again.size() == (0, 0)
    assert again.get("a", "key") is None
    assert (tmp_path / "deep" / "store" / "of somebody else").exists()


def test_an_entry_under_another_name_is_none(tmp_path):
    store = DataStore.open(tmp_path / "store")
    store.put("a", "key", [])
    (tmp_path / "store" / "entries" / "a").rename(tmp_path / "store" / "entries" / "b")
    assert store.get("b", "key") is None


def test_an_entry_that_cannot_be_written_whole_leaves_nothing(tmp_path, monkeypatch):
    store = DataStore.open(tmp_path / "store")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    store.put("a", "key", [np.ones(3)])
    assert store.size() == (0, 0)


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    store = DataStore.open(tmp_path / "store")
    for age, name in enumerate("abc"):
        store.put(name, "", [np.ones(100)])
        os.utime(tmp_path / "store" / "entries" / name, (age, age))
    monkeypatch.setattr(data_store, "MAX_STORE_BYTES", store.size()[1])
    store.get("a", "")
    store.put("d", "", [np.ones(100)])
    store.put("e", "", [np.ones(1000)])  # larger than all of the store
    assert [name for name in "abcde" if store.get(name, "")] == ["a", "c", "d"]


def test_a_label_is_found_however_its_letters_are_composed(tmp_path):
    store = DataStore.open(tmp_path / "store")
    store.put("a", "", [], marks=marks_of("Jos\u00e9", []))
    assert store.size("Jose\u0301")[0] == 1


def test_the_command_says_what_it_holds_and_removes_a_person_a_folder_or_all(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("CAPE_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    store = DataStore.open(tmp_path / "store")
    for site in ("local0", "local1"):
        for person in ("sub-01", "sub-02"):
            image = tmp_path / site / person / "rest.nii"
            store.put(site + person, "", [np.ones(25_000)], marks=marks_of(person, [image]))

    def typed(*words: str) -> list[str]:
        assert cli.main(["store", *words]) == 0
        return capsys.readouterr().out.splitlines()

    place = f"in {tmp_path / 'store'}"
    assert typed("01") == [f"2 entries of 01, 0.4 MB {place}"]
    at_zero = ["removed 1 entry of local0/sub-01, 0.2 MB", f"3 entries, 0.6 MB {place}"]
    assert typed("--clear", "local0/sub-01") == at_zero
    told = json.loads(typed("--clear", "sub-01", "--json")[0])
    assert (told["entries"], told["removed"]["entries"]) == (2, 1)
    assert cli.main(["store", "--clear", ""]) == 2
    capsys.readouterr()
    assert typed("--clear") == ["removed 2 entries, 0.4 MB", f"0 entries, 0.0 MB {place}"]
    monkeypatch.setenv("CAPE_CACHE", "none")
    assert typed("--clear") == ["nothing is kept"]


GRID = np.diag([10.0, 10.0, 10.0, 1.0])


@pytest.fixture
def fresh() -> Iterator[None]:
    """What this process remembers goes: as in a process of its own."""
    public_basis._smooth_basis.cache_clear()
    yield
    public_basis._smooth_basis.cache_clear()
    public_basis._shelves.clear()


def basis_of(inside: np.ndarray, n_basis: int, kind: BasisKind = "dct") -> np.ndarray:
    space = FeatureSpace.of_labels("mask", inside.astype(np.int32), GRID)
    found = public_basis._smooth_basis(kind, space, (), n_basis, wide=False)
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("kind", ["dct", "kernel"])
def test_a_basis_is_built_by_one_process_and_found_by_the_next(kind, tmp_path, monkeypatch):
    """Ten processes of a run took the same kernel apart: a quarter of its time.

    It has the layout that it was built with: products of another may differ in their last bits, and
    a run with a store from one without.
    """
    inside = np.ones((4, 5, 6), dtype=bool)
    built = basis_of(inside, 7, kind)
    public_basis._smooth_basis.cache_clear()
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    assert np.array_equal(basis_of(inside, 7, kind), built)
    public_basis._smooth_basis.cache_clear()
    monkeypatch.setitem(public_basis._BUILD, kind, pytest.fail)  # nobody builds it again
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    found = basis_of(inside, 7, kind)
    assert np.array_equal(found, built)
    assert found.strides == built.strides
    assert not found.flags.writeable


@pytest.mark.usefixtures("fresh")
def test_another_mask_and_another_number_of_columns_have_their_own(tmp_path: Path) -> None:
    public_basis.keep_on(partial(KeptBases, tmp_path / "store"))
    inside = np.ones((4, 5, 6), dtype=bool)
    less = inside.copy()
    less[0, 0, 0] = False
    shapes = [basis_of(mask, n).shape for mask, n in ((inside, 7), (less, 7), (inside, 6))]
    assert shapes == [(120, 7), (119, 7), (120, 6)]
