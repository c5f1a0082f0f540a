"""Working arrays may be lost at any time, and are never other arrays.

Belongs to `cape/site/store.py`.
"""

import binascii
import errno
import mmap
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cape.protocol.ports import Stacks
from cape.site.policy import SitePolicy
from cape.site.store import FileStore, JoinRecord, MemoryStore

STACKS = Stacks(
    arrays=(np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.zeros((1, 3, 5), np.float32)),
    labels=(("a", "\u00e9"), ("c",)),
)


def same(a: Stacks | None, b: Stacks) -> bool:
    return (
        a is not None
        and a.labels == b.labels
        and len(a.arrays) == len(b.arrays)
        and all(
            x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
            for x, y in zip(a.arrays, b.arrays, strict=True)
        )
    )


def side_store(folder: Path, site: str = "local0", contents: str = "") -> FileStore:
    """A store whose working arrays lie in that folder."""
    store = FileStore(folder / "never", folder, site)
    store.record = JoinRecord(
        card=("", 0, "", "", ""),
        policy_at_join=SitePolicy(),
        identity="",
        contents=contents,
        inputs={},
    )
    return store


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_working_arrays_come_back_under_their_name_and_key_only(kind, tmp_path) -> None:
    store = MemoryStore("local0") if kind == "memory" else side_store(tmp_path / "deep" / "folder")
    assert store.arrays("basis", "k") is None
    store.put_arrays("basis", "k", STACKS)
    assert same(store.arrays("basis", "k"), STACKS)
    assert store.arrays("basis", "other") is None
    assert store.arrays("reduced", "k") is None
    store.put_arrays("basis", "other", Stacks(arrays=(), labels=()))
    assert store.arrays("basis", "k") is None
    assert store.arrays("basis", "other") == Stacks(arrays=(), labels=())


def test_side_files_are_private_and_belong_to_one_party(tmp_path) -> None:
    one, two = side_store(tmp_path), side_store(tmp_path, "../local 1/x")
    one.put_arrays("basis", "k", STACKS)
    two.put_arrays("basis", "k", Stacks(arrays=(), labels=()))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent for path in files} == {tmp_path}
    one.forget_arrays()
    assert one.arrays("basis", "k") is None
    assert two.arrays("basis", "k") is not None
    one.forget_arrays()


def test_side_files_made_of_other_data_are_lost(tmp_path) -> None:
    """Same settings, other files: what lies there from another run is never summed."""
    one, two = (side_store(tmp_path, contents=c) for c in ("a", "b"))
    one.put_arrays("basis", "k", STACKS)
    assert two.arrays("basis", "k") is None
    assert same(one.arrays("basis", "k"), STACKS)


@pytest.fixture(scope="module")
def side_file(tmp_path_factory) -> tuple[FileStore, Path, bytes]:
    folder = tmp_path_factory.mktemp("side")
    store = side_store(folder)
    store.put_arrays("basis", "k", STACKS)
    (path,) = folder.iterdir()
    return store, path, path.read_bytes()


@given(data=st.data())
@settings(max_examples=300)
def test_a_damaged_side_file_is_lost_or_whole(data, side_file) -> None:
    """It is never other data, and never an error."""
    store, path, whole = side_file
    damaged = bytearray(whole)
    kind = data.draw(st.sampled_from(["change", "cut", "insert", "replace"]))
    where = data.draw(st.integers(0, len(whole) - 1))
    if kind == "change":
        damaged[where] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del damaged[where:]
    elif kind == "insert":
        damaged[where:where] = data.draw(st.binary(min_size=1, max_size=20))
    else:
        damaged = bytearray(data.draw(st.binary(max_size=64)))
        damaged[:0] = data.draw(
            st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"PK\x05\x06"])
        )
    path.write_bytes(bytes(damaged))
    found = store.arrays("basis", "k")
    assert found is None or same(found, STACKS)


def settled_side_file(folder: Path, stacks: Stacks = STACKS) -> tuple[FileStore, Path]:
    """A store whose file was read, summed up and found whole: `.seen` says so."""
    store = side_store(folder)
    store.put_arrays("basis", "k", stacks)
    (path,) = folder.iterdir()
    with pytest.MonkeyPatch.context() as patch:
        later = time.time() + 60.0
        patch.setattr(time, "time", lambda: later)
        assert same(store.arrays("basis", "k"), stacks)
    assert path.with_suffix(".seen").stat().st_mode & 0o777 == 0o600
    time.sleep(0.05)  # some kernels' clock of files ticks every 10 ms
    return store, path


@pytest.mark.parametrize("how", ["in place", "another file", "its times set back", "a copy"])
def test_a_side_file_that_was_found_whole_is_summed_up_again_once_it_changed(tmp_path, how) -> None:
    store, path = settled_side_file(tmp_path)
    before, damaged = path.stat(), bytearray(path.read_bytes())
    damaged[-1] ^= 1
    if how == "in place":
        with path.open("r+b") as file:
            file.write(damaged)
    else:
        other = tmp_path / "other"
        other.write_bytes(damaged)
        if how != "another file":
            os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        if how == "a copy":
            shutil.copy2(other, path)
        else:
            other.replace(path)
    assert path.stat().st_size == before.st_size
    assert store.arrays("basis", "k") is None


def test_a_side_file_is_summed_up_once_and_never_copied(tmp_path, monkeypatch) -> None:
    """The plain way, a copy of all that is there in every round, gives the same."""
    store, _ = settled_side_file(tmp_path)
    monkeypatch.setattr(binascii, "crc32", None)
    found = store.arrays("basis", "k")
    assert same(found, STACKS)
    for array, plain in zip(found.arrays, STACKS.arrays, strict=True):
        assert array.flags.aligned
        assert array.ctypes.data % 64 == 0
        assert not array.flags.writeable
        assert array.flags.f_contiguous == plain.flags.f_contiguous
    store.forget_arrays()
    assert list(tmp_path.iterdir()) == []
    assert same(found, STACKS)  # whoever holds arrays keeps them


def test_a_side_file_is_read_where_it_cannot_be_mapped(tmp_path, monkeypatch) -> None:
    """Else a site whose cache lies on such a file system would read its data in every round."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    store, path = settled_side_file(tmp_path)
    monkeypatch.setattr(mmap, "mmap", refused)
    assert same(store.arrays("basis", "k"), STACKS)
    path.write_bytes(path.read_bytes()[:-1])
    assert store.arrays("basis", "k") is None


def test_a_side_file_that_was_written_just_now_is_not_taken_as_it_is(tmp_path) -> None:
    """Another write within one tick of the file system's clock would have the same times."""
    store = side_store(tmp_path)
    store.put_arrays("basis", "k", STACKS)
    assert same(store.arrays("basis", "k"), STACKS)
    assert not list(tmp_path.glob("*.seen"))
