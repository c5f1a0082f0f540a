"""Rounds that a resident process starts: the same bytes as without it, or as if there were none."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cape.engines.coinstac import resident
from support import consortium

ROOT = Path(__file__).parents[2]
SITE = "local0"

# Runs local.py and says whether this process imported numpy: then it answered by itself.
PROGRAM = """
import runpy, sys
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
finally:
    open(sys.argv[2], "w").write("alone" if "numpy" in sys.modules else "resident")
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel must say who calls")


class Done(NamedTuple):
    who: str
    code: int
    out: bytes
    err: bytes


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return consortium.record(tmp_path_factory.mktemp("recording"))


def environment(**more: str) -> dict[str, str]:
    dropped = ("CAPE_SITE_POLICY", resident.VARIABLE)
    kept = {name: text for name, text in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def started(place: Path, root: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "cape.engines.coinstac.resident", str(place)],
        env=environment(PYTHONPATH=str(root)), stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == f"ready: {place}/cape.sock\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def listening(place: Path) -> Iterator[socket.socket]:
    """A socket of this user's where a resident process has its own."""
    place.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "cape.sock"))
        (place / "cape.sock").chmod(0o600)
        listener.listen()
        yield listener


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a resident process that lives as long as this module."""
    place = tmp_path_factory.mktemp("own") / "resident"
    with started(place):
        yield place


def ask(recording, work: Path, folder: Path | str, *, root: Path = ROOT, text=None, **more) -> Done:
    """Let ``local.py`` answer the second `iterate` round in a fresh copy of its folders."""
    shutil.rmtree(work, ignore_errors=True)
    engine = recording.at(("iterate", 2), work)
    found = {
        "CAPE_SITE_POLICY": str(engine.work / SITE / "site-policy.toml"),
        resident.VARIABLE: str(folder),
        "PYTHONPATH": str(root),
        **more,
    }
    who = work / "who"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root / "local.py"), str(who)],
        input=engine.document(SITE, engine.input) if text is None else text,
        capture_output=True, env=environment(**found), cwd=root, check=False,
    )  # fmt: skip
    return Done(who.read_text(), done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("text", [None, b"not json"])
def test_answers_and_errors_are_the_same_bytes(recording, folder, tmp_path, text) -> None:
    # In one place after the other: documents name their folders.
    alone = ask(recording, tmp_path / "work", "", text=text)
    for _ in range(2):
        other = ask(recording, tmp_path / "work", folder, text=text)
        assert (alone.who, other.who) == ("alone", "resident")
        assert other[1:] == alone[1:]
    assert (alone.code == 0) == (text is None)


@pytest.mark.slow
def test_a_call_sees_the_policy_and_the_folder_of_its_caller(recording, folder, tmp_path) -> None:
    stricter = tmp_path / "policy.toml"
    stricter.write_text("min_subjects = 1000\nsimulation_seed = 7\nallow_not_private = true\n")
    for more in ({"CAPE_SITE_POLICY": str(stricter)}, {"CAPE_SITE_POLICY": "no such file"}, {}):
        alone = ask(recording, tmp_path / "work", "", **more)
        other = ask(recording, tmp_path / "work", folder, **more)
        assert other.who == "resident"
        assert other[1:] == alone[1:]
    assert other.code == 0


@pytest.mark.slow
def test_what_it_writes_is_as_private_as_without_it(recording, folder, tmp_path) -> None:
    def modes(work: Path) -> dict[str, int]:
        found = work.rglob("*")
        return {str(p.relative_to(work)): p.lstat().st_mode for p in found if p.name != "who"}

    ask(recording, tmp_path / "work", "")
    alone = modes(tmp_path / "work")
    assert ask(recording, tmp_path / "work", folder).who == "resident"
    assert modes(tmp_path / "work") == alone


@pytest.mark.parametrize(
    "more",
    [
        {"OPENBLAS_NUM_THREADS": "2"},
        pytest.param({"PYTHONHASHSEED": "5"}, marks=pytest.mark.slow),
        pytest.param({"LC_ALL": "C.UTF-8"}, marks=pytest.mark.slow),
    ],
)
def test_what_a_fork_cannot_take_over_is_turned_down(recording, folder, tmp_path, more) -> None:
    done = ask(recording, tmp_path / "work", folder, **more)
    assert (done.who, done.code) == ("alone", 0)


def test_another_limit_or_processor_set_is_turned_down(monkeypatch) -> None:
    import resource

    ours = resident._facts()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert resident._facts() != ours
    monkeypatch.undo()
    monkeypatch.setattr(os, "readlink", lambda _: "mnt:[1]")  # another container
    assert resident._facts() != ours


@pytest.mark.slow
def test_a_program_that_was_replaced_is_not_answered_by_the_old_one(recording, tmp_path) -> None:
    root = tmp_path / "program"
    shutil.copytree(ROOT / "cape", root / "cape", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "local.py", root)
    with started(tmp_path / "own", root):
        assert ask(recording, tmp_path / "work", tmp_path / "own", root=root).who == "resident"
        # Another checkout's caller, then a file that this one did not load so far.
        assert ask(recording, tmp_path / "work", tmp_path / "own").who == "alone"
        os.utime(root / "cape" / "report" / "page.py", (1, 1))
        assert ask(recording, tmp_path / "work", tmp_path / "own", root=root).who == "alone"


def test_a_dead_or_deaf_process_means_that_local_py_answers(recording, tmp_path) -> None:
    place = tmp_path / "own"
    with started(place) as process:
        pass
    assert process.returncode == -signal.SIGKILL
    assert (place / "cape.sock").is_socket()  # it was left behind
    assert ask(recording, tmp_path / "work", place)[:2] == ("alone", 0)
    (place / "cape.sock").unlink()
    with listening(place) as deaf:

        def hang_up() -> None:
            connection, _ = deaf.accept()
            time.sleep(0.2)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert ask(recording, tmp_path / "work", place)[:2] == ("alone", 0)
        thread.join()


@pytest.mark.slow
def test_who_listens_elsewhere_gets_no_document(recording, tmp_path) -> None:
    """A folder or a socket that others may open or put there is not spoken to."""
    place = tmp_path / "own"
    with listening(place) as listener:
        listener.setblocking(False)
        link = tmp_path / "link"
        link.symlink_to(place)

        def asked(named: Path) -> bool:
            assert ask(recording, tmp_path / "work", named).who == "alone"
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                return True
            return False

        assert not asked(link)
        place.chmod(0o750)
        assert not asked(place)
        place.chmod(0o700)
        (place / "cape.sock").chmod(0o660)
        assert not asked(place)
        (place / "cape.sock").chmod(0o600)
        if os.geteuid() == 0:
            os.chown(place, 12345, 12345)
            assert not asked(place)
            os.chown(place, 0, 0)
        assert asked(place)


def test_no_folder_that_others_may_open_is_listened_in(tmp_path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    done = subprocess.run(
        [sys.executable, "-m", "cape.engines.coinstac.resident", str(place)],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "mode 0700" in done.stderr
    assert not (place / "cape.sock").exists()


def call(folder: Path, **changed: bytes) -> bytes:
    """What comes back for a call whose parts are changed, up to the end of the connection."""
    parts = {"role": b"local", "cwd": b"/", "mask": b"63", "facts": resident._packed([])}
    parts |= {"environment": resident._packed([]), **changed}
    raw = resident._packed(list(parts.values()))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "cape.sock"))
        connection.settimeout(30)
        connection.sendall(len(raw).to_bytes(4, "little") + raw)
        return connection.recv(1)


@pytest.mark.parametrize("changed", [{}, {"role": b"service"}, {"facts": b"\xff\xff\xff\xff"}])
def test_calls_of_another_form_get_no_word(recording, folder, tmp_path, changed) -> None:
    assert call(folder, **changed) == b""
    assert ask(recording, tmp_path / "work", folder).who == "resident"  # it still listens


def test_a_caller_that_gives_up_leaves_its_input_unread(folder, tmp_path) -> None:
    """READY that comes too late must not read what the caller reads by itself."""
    text = tmp_path / "input"
    text.write_bytes(b"{}")
    mask = os.umask(0o22)
    os.umask(mask)
    with socket.socket(socket.AF_UNIX) as connection, text.open("rb") as stream:
        connection.connect(str(folder / "cape.sock"))
        # The facts of a process that was started as the resident one was.
        facts = subprocess.run(
            [sys.executable, "-c", "import sys; from cape.engines.coinstac import resident as r; "
             "sys.stdout.buffer.write(r._packed(r._facts()))"],
            env=environment(), capture_output=True, check=True,
        ).stdout  # fmt: skip
        parts = [b"local", b"/", str(mask).encode(), facts, resident._packed([])]
        raw = resident._packed(parts)
        connection.sendall(len(raw).to_bytes(4, "little") + raw)
        connection.settimeout(30)
        assert connection.recv(1) == resident.READY
        socket.send_fds(connection, [b"\x00"], [stream.fileno()] * 3)  # anything but READ
        assert connection.recv(1) == b""
        assert stream.tell() == 0


@pytest.mark.slow
def test_a_call_ends_with_its_caller(recording, folder, tmp_path) -> None:
    engine = recording.at(("iterate", 2), tmp_path / "work")
    policy = str(engine.work / SITE / "site-policy.toml")
    caller = subprocess.Popen(
        [sys.executable, str(ROOT / "local.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(**{"CAPE_SITE_POLICY": policy, resident.VARIABLE: str(folder)}),
    )  # fmt: skip
    text = engine.document(SITE, engine.input)
    caller.stdin.write(text[:10])
    caller.stdin.flush()
    time.sleep(1.0)
    caller.kill()
    caller.wait()
    # Its end of stdout is closed only when the fork is gone, too.
    assert caller.stdout.read() == b""
    caller.stdout.close()
    caller.stdin.close()
    assert ask(recording, tmp_path / "work", folder)[:2] == ("resident", 0)


def test_a_fork_that_dies_is_a_round_that_failed_and_no_traceback(tmp_path) -> None:
    """The end of the other side, with what was sent to it still unread."""
    place = tmp_path / "own"
    with listening(place) as listener:
        caller = subprocess.Popen(
            [sys.executable, str(ROOT / "local.py")], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(**{resident.VARIABLE: str(place)}),
        )  # fmt: skip
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as reader:
            reader.read(int.from_bytes(reader.read(4), "little"))
            connection.sendall(resident.READY)
            time.sleep(0.5)  # READ and the streams come, and nobody takes them
    out, err = caller.communicate(timeout=60)
    assert (caller.returncode, out, err) == (1, b"", b"")
