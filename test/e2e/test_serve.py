"""The service of the image, spoken to as COINSTAC's engine speaks to it."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedOK

from cape.engines.coinstac import computation
from cape.engines.coinstac import service as serve
from cape.protocol import wire
from support import consortium
from support.federation import free_port

ROOT = Path(__file__).parents[2]


def talk(conversation):
    """Start the service, hold a conversation with it, stop it."""

    async def whole():
        stop, ready, port = asyncio.Event(), asyncio.Event(), free_port()
        running = asyncio.create_task(serve.service(stop, host="127.0.0.1", port=port, ready=ready))
        await asyncio.wait_for(ready.wait(), 10)
        try:
            return await asyncio.wait_for(conversation(f"ws://127.0.0.1:{port}"), 60)
        finally:
            stop.set()
            await asyncio.wait_for(running, 10)

    return asyncio.run(whole())


async def call(url, mode, document):
    """One call of version 2: the empty connection first, as the engine does."""
    async with connect(url):
        pass
    async with connect(url, max_size=None) as connection:
        await connection.send(json.dumps({"mode": mode, "data": document}))
        return json.loads(await connection.recv())


def document(folder: Path) -> dict:
    """A first round of a site without data: an error with a code."""
    places = ("baseDirectory", "outputDirectory", "cacheDirectory", "transferDirectory")
    state = {name: str(folder / name) for name in places}
    for place in state.values():
        Path(place).mkdir(exist_ok=True)
    return {"input": {"computation": "capedjica", "epsilon": 1, "delta": 1e-5, "n_sites": 3},
            "cache": {},
            "state": {**state, "clientId": "local0", "iteration": 1}}  # fmt: skip


def echo(role, document, places):
    return {"output": document["input"], "cache": {}, "success": False}


def test_a_call_is_answered_after_an_empty_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(computation, "run", echo)
    asked = {**document(tmp_path), "input": {"a": [1, 2.5, "x"]}}
    frame = talk(lambda url: call(url, "local", asked))
    assert frame == {
        "type": "stdout",
        "data": {"output": {"a": [1, 2.5, "x"]}, "cache": {}, "success": False},
        "end": True,
    }


def test_an_error_goes_out_with_its_code_and_nothing_else(tmp_path):
    frame = talk(lambda url: call(url, "local", document(tmp_path)))
    assert (frame["type"], frame["code"], frame["end"]) == ("stderr", 1, True)
    assert frame["data"].startswith("CAPE-E104 ")
    assert str(tmp_path) not in frame["data"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"output": {"x": float("nan")}, "cache": {}, "success": False}, "finite"),
        ({"output": {"x": {1, 2}}, "cache": {}, "success": False}, "finite"),
        ({"output": {"x": "y" * 2000}, "cache": {}, "success": False}, "allowed 1000"),
    ],
)
def test_what_would_hang_the_engine_is_an_error_instead(tmp_path, monkeypatch, answer, problem):
    monkeypatch.setattr(computation, "run", lambda role, document, places: answer)
    monkeypatch.setattr(wire, "MAX_ANSWER", 1000)
    frame = talk(lambda url: call(url, "local", document(tmp_path)))
    assert frame["type"] == "stderr"
    assert frame["data"].startswith("CAPE-E240 ")
    assert problem in frame["data"]


def test_the_aggregator_may_end_the_run(tmp_path, monkeypatch):
    done = {"output": {}, "cache": {}, "success": True}
    monkeypatch.setattr(computation, "run", lambda role, document, places: done)
    assert talk(lambda url: call(url, "remote", document(tmp_path)))["data"] == done


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "3", '{"mode": "both", "data": {}}', '{"mode": "local"}', "{}"]
)
def test_what_is_no_call_is_refused(text):
    async def conversation(url):
        async with connect(url) as connection:
            await connection.send(text)
            return json.loads(await connection.recv())

    frame = talk(conversation)
    assert (frame["type"], frame["code"]) == ("stderr", 1)
    assert frame["data"].startswith("CAPE-E158 ")


async def dialogue(url, first, pieces):
    """One call of version 1; returns the frames."""
    frames = []
    async with connect(url, max_size=None) as connection:
        await connection.send(json.dumps(first))
        for piece in (*pieces, b""):
            await connection.send(piece)
        while len(frames) < 100:
            frames.append(json.loads(await connection.recv()))
            if frames[-1]["type"] in ("close", "error"):
                return frames


def streams(frames):
    text = {"stdout": "", "stderr": ""}
    for frame in frames[:-1]:
        text[frame["type"]] += frame.get("data", "")
    ends = [frame["type"] for frame in frames if frame.get("end")]
    return text, sorted(ends), frames[-1]


@pytest.fixture
def programs(monkeypatch):
    """The programs lie in the checkout here, in /computation in the image."""
    monkeypatch.setattr(serve, "PROGRAM_FOLDER", ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_version_1_and_2_give_the_same_answer_to_recorded_rounds(programs, recorded):
    role, text = recorded
    path = f"/computation/{role}.py"
    again = json.loads(text)
    shutil.copytree(again["state"]["outputDirectory"], kept := Path(
        again["state"]["outputDirectory"] + "-kept"))  # fmt: skip

    def version_2(url):
        return call(url, role, again)

    def version_1(url):
        return dialogue(url, {"command": "python", "args": [path]}, [text])

    second = talk(version_2)["data"]
    shutil.rmtree(again["state"]["outputDirectory"])
    shutil.copytree(kept, again["state"]["outputDirectory"])
    found, _, last = streams(talk(version_1))
    assert last == {"type": "close", "code": 0}
    assert found["stderr"] == ""
    assert wire.dumps(json.loads(found["stdout"])) == wire.dumps(second)


IN_THE_IMAGE = """#!/bin/sh
[ "$*" = "-m cape.engines.coinstac.service" ] || exit 9
exec {python} -c '
import asyncio
from pathlib import Path
from cape.engines.coinstac import service
service.PROGRAM_FOLDER = Path("{root}")
service.service.__kwdefaults__["port"] = {port}
asyncio.run(service.main())'
"""


def test_the_images_node_is_the_service_of_version_1(programs, tmp_path):
    """COINSTAC's server, which always sets LOGLEVEL, starts `node /server/index.js {..}`."""
    port, folder = free_port(), tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"
    python.write_text(IN_THE_IMAGE.format(python=sys.executable, root=ROOT, port=port))
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LOGLEVEL": "info"}
    node = subprocess.Popen(
        [ROOT / "packaging" / "node", "/server/index.js", '{"level":"info"}'],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    first = {"command": "python", "args": ["/computation/local.py"]}
    (tmp_path / "site").mkdir()
    text = json.dumps(document(tmp_path / "site"))

    async def round_of_version_1():
        until = time.monotonic() + 30
        while True:
            try:
                return await dialogue(f"ws://127.0.0.1:{port}", first, [text])
            except OSError:  # nobody listens yet
                assert node.poll() is None
                assert time.monotonic() < until
                await asyncio.sleep(0.1)

    try:
        found, ends, last = streams(asyncio.run(round_of_version_1()))
    finally:
        node.terminate()
        node.wait(10)
    assert last == {"type": "close", "code": 1}
    assert ends == ["stderr", "stdout"]
    assert found["stderr"].startswith("CAPE-E104 ")


@pytest.mark.parametrize("words", [[], ["--version"], ["/server/other.js"], ["-e", "1"]])
def test_the_images_node_is_no_node(words):
    done = subprocess.run(
        [ROOT / "packaging" / "node", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "this image has no node" in done.stderr


def test_version_1_does_not_collect_more_than_a_document(programs, monkeypatch):
    monkeypatch.setattr(wire, "MAX_DOCUMENT", 100)
    first = {"command": "python", "args": ["/computation/local.py"]}
    frames = talk(lambda url: dialogue(url, first, ["x" * 60] * 2))
    assert frames == [{"type": "error", "error": "CAPE-E158 standard input is too long."}]


@pytest.fixture(params=["local", "remote"])
def recorded(request, tmp_path, monkeypatch):
    """The document of the second round of one party, with its folders as they were."""
    engine = consortium.Engine(
        tmp_path / "work",
        consortium.write_data(tmp_path / "data"),
        consortium.settings_of("capedjica"),
    )
    engine.exchange()
    party = "local1" if request.param == "local" else "remote"
    monkeypatch.setenv("CAPE_SITE_POLICY", str(engine.work / party / "site-policy.toml"))
    if party == "local1":
        return "local", engine.document("local1", engine.input).decode()
    inbox = {s: engine.take(s, engine.ask(s)) for s in engine.sites}
    return "remote", engine.document("remote", inbox).decode()


@pytest.mark.parametrize(
    "first",
    [
        {"command": "sh", "args": ["-c", "id"]},
        {"command": "python", "args": ["-c", "print(1)"]},
        {"command": "python", "args": ["/computation/../etc/passwd"]},
        {"command": "python", "args": ["/computation/local.py", "more"]},
        {"command": "python"},
        {"command": ["python"], "args": "/computation/local.py"},
    ],
)
def test_version_1_starts_no_other_command(programs, first, monkeypatch):
    def started(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    (frame,) = talk(lambda url: dialogue(url, first, []))
    assert frame == {"type": "error", "error": "CAPE-E158 this image runs no other command."}


def test_the_log_holds_who_and_how_long_and_no_data(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    talk(lambda url: call(url, "local", document(tmp_path)))
    ours = [record.getMessage() for record in caplog.records if record.name == "cape"]
    assert len(ours) == 1
    assert ours[0].startswith("site failed after ")
    assert str(tmp_path) not in caplog.text.replace(repr(tmp_path), "")


def test_sigterm_ends_the_service_at_once_also_within_a_call(tmp_path):
    port = free_port()
    program = (
        "import asyncio, time\n"
        "from cape.engines.coinstac import service\n"
        "service.run = lambda role, document, places: time.sleep(60)\n"
        f"service.PORT = {port}\n"
        "real = service.service\n"
        f"service.service = lambda stop: real(stop, host='127.0.0.1', port={port})\n"
        "asyncio.run(service.main())\n"
    )

    async def send():
        for _ in range(100):
            try:
                connection = await connect(f"ws://127.0.0.1:{port}")
                break
            except OSError:
                await asyncio.sleep(0.1)
        await connection.send(json.dumps({"mode": "local", "data": document(tmp_path)}))
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        await asyncio.to_thread(process.wait, 10)
        seconds = time.monotonic() - began
        await connection.close()
        return seconds

    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert asyncio.run(send()) < 5
    assert process.returncode == 0


def test_a_document_too_large_is_refused_and_the_next_is_served(tmp_path, monkeypatch):
    assert wire.MAX_DOCUMENT == 100 * 2**20
    monkeypatch.setattr(computation, "run", echo)
    monkeypatch.setattr(wire, "MAX_DOCUMENT", 5000)

    async def conversation(url):
        async with connect(url) as connection:
            await connection.send("x" * 6000)
            try:
                await connection.recv()
            except ConnectionClosedOK:
                raise
            except Exception as err:
                code = err.rcvd.code
        return code, await call(url, "local", document(tmp_path))

    code, frame = talk(conversation)
    assert code == 1009  # message too big
    assert frame["type"] == "stdout"
