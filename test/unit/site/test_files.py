"""Files of a site are whole or not there, and one process holds a folder."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from cape.errors import StoppedError
from cape.site.files import (
    BLOCK_BYTES,
    NO_LOCKS,
    appending,
    folder_lock,
    is_locked,
    overwrite,
    write_atomically,
)


def test_a_file_is_replaced_whole_and_synced_before_its_name(tmp_path, monkeypatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    done = []
    real = os.replace

    def replace(old, new):
        assert Path(old).read_bytes() == b"new"
        assert Path(new).read_bytes() == b"old"
        done.append("replace")
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync"))
    write_atomically(path, b"new")
    assert done == ["fsync", "replace", "fsync"]
    assert path.read_bytes().rstrip() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_file_is_overwritten_in_its_place_and_synced(tmp_path, monkeypatch) -> None:
    done = []

    def synced(handle: int) -> None:
        place = Path(f"/proc/self/fd/{handle}").readlink()
        done.append((place, place.is_file() and place.read_bytes().rstrip()))

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced)
    path = tmp_path / "x"
    overwrite(path, b"1" * 5000)
    assert done == [(path, b"1" * 5000), (tmp_path, False)]
    for data in (b"new", b"newer", b"new"):
        done.clear()
        overwrite(path, data)
        assert done == [(path, data)]
        assert path.stat().st_size == BLOCK_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        overwrite(tmp_path / "link", b"through")
    assert path.read_bytes().rstrip() == b"new"


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path) -> None:
    """Two processes of one site would draw two noises for one release."""
    with folder_lock(tmp_path, "site B"):
        with pytest.raises(StoppedError, match="E263 site B is in use by another process"):
            with folder_lock(tmp_path, "site B", patience=0.0):
                raise AssertionError("held twice")
        with folder_lock(tmp_path.parent, "another folder", patience=0.0):
            pass
    with folder_lock(tmp_path, "site B", patience=0.0):
        pass


def test_where_folders_cannot_be_locked_a_file_stands_for_its_folder(tmp_path, monkeypatch) -> None:
    """NFS locks files only."""
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    site = tmp_path / "site"
    site.mkdir()
    test_a_folder_is_held_by_one_process_at_a_time(site)
    assert (site / ".cape.lock").is_file()


@pytest.mark.parametrize("number", sorted(NO_LOCKS))
def test_a_file_system_without_locks_has_a_code_of_its_own(tmp_path, monkeypatch, number) -> None:
    """It read "disk full, read-only or gone?" for ever; and nobody may run without a lock."""

    def flock(handle: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoppedError, match=r"E309 site B cannot be locked .* CAPE_SITE_HOME"):
        with folder_lock(tmp_path, "site B"):
            raise AssertionError("not locked")
    with pytest.raises(StoppedError, match="E309"), appending(tmp_path / "ledger", "site B"):
        raise AssertionError("not locked")
    assert not is_locked(tmp_path)
