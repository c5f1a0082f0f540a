"""Another process on a site's computer: files, links, ports and other users.

What it may do: list and read what permissions let it, put files and links where it may write, call
whatever listens.  It is not root and not the user who runs the site.
"""

import asyncio
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cape.engines.coinstac import computation, service
from cape.engines.coinstac.documents import EngineRequest
from cape.errors import CapeError, MessageError
from cape.protocol.ports import Stacks
from cape.site.files import write_atomically
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy
from cape.site.store import FileStore
from support import consortium as helper

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="to become somebody else takes root")


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A site whose administrator set no umask."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable(folder: Path) -> list[str]:
    """What a neighbour who may enter `folder` can read or list below it."""
    found = []
    for path in sorted(folder.iterdir()):
        if mode(path) & 0o077:
            found.append(path.name)
        if path.is_dir() and mode(path) & 0o011:
            found += [f"{path.name}/{name}" for name in readable(path)]
    return found


def played(tmp_path: Path, policy: SitePolicy) -> helper.Engine:
    data = helper.write_data(tmp_path / "data")
    engine = helper.Engine(tmp_path / "work", data, SETTINGS, policy=policy)
    engine.play()
    return engine


PRIVATE = SitePolicy(min_subjects=1, private_results=True)
# Ten people show nothing at what a shipped policy allows.
SETTINGS = helper.settings_of("capedjica", epsilon=PRIVATE.max_run[0][0], accept_low_quality=True)


# -- files of people -------------------------------------------------------------------------------


def test_no_file_about_people_is_readable_whatever_the_umask(tmp_path, open_umask) -> None:
    engine = played(tmp_path, PRIVATE)
    output = engine.place("local1", "output")
    assert readable(output) == []
    private = output / "private"
    assert mode(private) == 0o700
    names = {path.name for path in private.iterdir()}
    assert {"subjects.tsv", "ledger.json", "sent.jsonl", "index.html"} <= names
    inside = [*private.rglob("*")]
    assert {mode(path) for path in inside if path.is_file()} == {0o600}
    assert {mode(path) for path in inside if path.is_dir()} == {0o700}
    assert mode(output / "cape-site.json") == 0o600


def test_what_a_site_keeps_while_a_run_goes_on_is_its_own(tmp_path, open_umask) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = helper.Engine(tmp_path / "work", data, SETTINGS, policy=PRIVATE)
    for _ in range(5):
        engine.exchange()
    assert readable(engine.place("local1", "output")) == []
    assert readable(engine.place("local1", "cache")) == []


def test_why_a_site_stopped_is_for_its_own_eyes(tmp_path, open_umask) -> None:
    (tmp_path / "site").mkdir()
    places = {f"{name}Directory": str(tmp_path / name) for name in ("output", "cache", "transfer")}
    state = {**places, "baseDirectory": str(tmp_path / "site"), "clientId": "B", "iteration": 1}
    with pytest.raises(CapeError):
        computation.run("local", {"input": helper.settings_of("capemean"), "cache": {},
                                  "state": state}, SitePlaces())  # fmt: skip
    assert mode(tmp_path / "output" / "site-error.txt") == 0o600


# -- links and files in its way --------------------------------------------------------------------


def test_links_that_somebody_planted_are_not_followed(tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "diary").write_text("mine")
    data = helper.write_data(tmp_path / "data")
    engine = helper.Engine(tmp_path / "work", data, SETTINGS, policy=PRIVATE)
    output = engine.place("local1", "output")
    for name in ("cape-site.json", "cape-site.json.partial", "site-error.txt"):
        (output / name).symlink_to(victim / "diary")
    (output / "private").symlink_to(victim)
    (victim / "receipt.jsonl").write_text("of another run")
    (output / ".cape").symlink_to(victim)
    engine.play()
    assert (victim / "diary").read_text() == "mine"
    assert sorted(path.name for path in victim.iterdir()) == ["diary", "receipt.jsonl"]
    assert mode(victim) == 0o755
    assert (output / "private" / "index.html").is_file()
    assert not (output / "private").is_symlink()


def test_a_file_that_is_replaced_is_new_and_nobody_holds_it_open(tmp_path) -> None:
    path = tmp_path / "secret"
    partial = tmp_path / "secret.partial"
    partial.write_text("")
    partial.chmod(0o666)
    with partial.open() as held:  # opened before: it must not read what comes later
        write_atomically(path, b"the key")
        assert held.read() == ""
    assert path.read_bytes() == b"the key"
    assert mode(path) == 0o600


@as_root
def test_working_arrays_that_somebody_else_put_there_are_made_again(tmp_path) -> None:
    """The engine's cache is /tmp in some containers: everybody may write there."""
    store = FileStore(tmp_path / "output", tmp_path / "cache", "local1")
    stacks = Stacks(arrays=(np.ones((1, 2, 3), dtype=np.float32),), labels=(("sub-1",),))
    store.put_arrays("basis", "key", stacks)
    assert store.arrays("basis", "key") is not None
    (path,) = (tmp_path / "cache").iterdir()
    os.chown(path, NOBODY, NOBODY)
    assert store.arrays("basis", "key") is None


def test_a_pipe_or_link_in_place_of_working_arrays_holds_no_site_up(tmp_path) -> None:
    store = FileStore(tmp_path / "output", tmp_path / "cache", "local1")
    stacks = Stacks(arrays=(np.ones((1, 2, 3), dtype=np.float32),), labels=(("sub-1",),))
    store.put_arrays("basis", "key", stacks)
    (path,) = (tmp_path / "cache").iterdir()
    os.mkfifo(path.with_suffix(".seen"))
    assert store.arrays("basis", "key") is not None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.arrays("basis", "key") is None
    path.unlink()
    os.mkfifo(path)
    assert store.arrays("basis", "key") is None
    path.unlink()
    path.mkdir()
    before = len(os.listdir("/dev/fd"))
    assert store.arrays("basis", "key") is None
    assert len(os.listdir("/dev/fd")) == before
    store.forget_arrays()


# -- the service of the image ----------------------------------------------------------------------


def document(folder: Path, **changed: str) -> dict[str, object]:
    places = {f"{name}Directory": str(folder / name)
              for name in ("base", "output", "cache", "transfer")}  # fmt: skip
    state = {**places, **changed, "clientId": "local1", "iteration": 1}
    return {
        "input": {"computation": "capedjica", "epsilon": 1, "delta": 1e-5},
        "cache": {},
        "state": state,
    }


def test_the_service_opens_no_folder_outside_its_mounts(tmp_path, monkeypatch) -> None:
    inside, outside, beside = (tmp_path / name for name in ("mounted", "home", "mounted2"))
    outside.mkdir()
    beside.mkdir()
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    monkeypatch.setenv(service.MOUNTS_VARIABLE, f"{inside}{os.pathsep}/nowhere")
    service.check_mounts(EngineRequest.of("local", document(inside)))
    for name in ("base", "output", "cache", "transfer"):
        for where in (
            str(outside), f"{inside}/../home", str(inside / "link"), str(beside), "", "/"
        ):  # fmt: skip
            call = {"mode": "local", "data": document(inside, **{f"{name}Directory": where})}
            frame = json.loads(service.answer_call(call))
            assert frame["code"] == 1
            assert frame["data"].endswith(f"{name}Directory lies outside what is mounted.")
    assert not list(outside.iterdir())
    monkeypatch.delenv(service.MOUNTS_VARIABLE)
    with pytest.raises(MessageError, match="outside"):
        service.check_mounts(EngineRequest.of("local", document(Path("/root"))))


def test_a_service_with_a_token_answers_nobody_who_lacks_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(service.TOKEN_VARIABLE, "s3cret")

    async def whole() -> list[str]:
        stop, ready, said = asyncio.Event(), asyncio.Event(), []
        running = asyncio.create_task(service.service(stop, host="127.0.0.1", port=0, ready=ready))
        await asyncio.wait_for(ready.wait(), 10)
        port = int(os.environ["CAPE_TEST_PORT"])
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer s3cret"}):
            try:
                url = f"ws://127.0.0.1:{port}"
                async with connect(url, additional_headers=headers) as connection:
                    await connection.send("{}")
                    said.append(json.loads(await connection.recv())["type"])
            except InvalidStatus as err:
                said.append(str(err.response.status_code))
        stop.set()
        await asyncio.wait_for(running, 10)
        return said

    real = service.listen

    def listening(*given: object, **named: object) -> object:
        server = real(*given, **named)
        monkeypatch.setenv("CAPE_TEST_PORT", str(free))
        return server

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    monkeypatch.setattr(
        service, "listen",
        lambda handler, host, port, **named: listening(handler, host, free, **named),
    )  # fmt: skip
    assert asyncio.run(whole()) == ["401", "401", "stderr"]


# -- whose process this is -------------------------------------------------------------------------


def ids_after(role: str, asked: dict[str, object]) -> tuple[int, int]:
    """Effective user and group of a process of root that was shown a document."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        computation.become_owner(role, asked)
        os.write(write, f"{os.getresuid()} {os.getresgid()}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    uids, gids = (set(json.loads(f"[{part}]")) for part in text[1:-1].split(") ("))
    return uids.pop() if len(uids) == 1 else -1, gids.pop() if len(gids) == 1 else -1


@as_root
def test_root_becomes_whom_the_output_folder_belongs_to() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o755)
        for name in ("base", "output", "cache", "transfer"):
            (folder / name).mkdir()
        asked = document(folder)
        assert ids_after("local", asked) == (0, 0)  # a folder of root: nobody else could write
        for name in ("output", "cache", "transfer"):
            os.chown(folder / name, NOBODY, NOBODY)
        assert ids_after("local", asked) == (NOBODY, NOBODY)
        # Where that person may not read the data, it stays who it is, and reads them.
        (folder / "base").chmod(0o700)
        assert ids_after("local", asked) == (0, 0)
    finally:
        shutil.rmtree(folder)
