"""Records a run in COINSTAC's own engine: `make test-engine`.

The containers run the service of the image with ears (`listening_service.py`), so that every frame
between the engine and a party is kept, with the folders as they were; the engine's broker tells
every packet that parties send each other (`listening_broker.js`).  Nothing of the product differs.
"""

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cape.engines.coinstac import compspec
from cape.lab.engines import containers
from cape.lab.engines.coinstac import RUN, simulate_in_engine
from cape.protocol import wire
from cape.simulation.run_loop import RunOptions, RunSetup
from cape.simulation.ways import Play
from cape.site.policy import SitePolicy

HERE = Path(__file__).parent
SERVICE = HERE / "listening_service.py"
IMAGE = os.environ.get("CAPE_IMAGE", containers.image_for({}))
ENGINES = ("engine-1", "engine-2")
"""The engine, with both of its versions of a computation."""
LISTENING = "localhost/coinstac-cape-listening"
CLIENT = re.compile(rb'"clientId": ?"([^"]+)"')
# Version 1 is started through the wrapper, version 2 by the command of the image.
DOCKERFILE = """FROM {image}
COPY listening_service.py /
RUN sed -i 's|-m cape.engines.coinstac.service|/listening_service.py|' /opt/cape/bin/node
CMD ["python", "/listening_service.py"]
"""


def play_in_engine(
    sites: Mapping[str, Path],
    settings: Mapping[str, Any],
    policy: SitePolicy,
    work: Path,
    transcript: Any,
    *,
    version: int,
) -> None:
    """Play a run and write into the transcript what was heard; a run that fails raises."""
    packets = work / "packets.jsonl"
    ears = {
        "NODE_OPTIONS": f"--require {HERE / 'listening_broker.js'}",
        "HEARD_PACKETS": str(packets),
    }
    base = image_of(str(settings.get("computation", "")))
    image = derived(DOCKERFILE, LISTENING, {SERVICE.name: SERVICE.read_bytes()}, base=base)
    setup = RunSetup(
        directory="",
        through="coinstac",
        settings=dict(settings),
        policy=policy,
        drops=(),
        image=image,
    )
    play = Play(setup=setup, sites=sites, work=work, options=RunOptions(out=work.parent))
    try:
        with mock.patch.dict(os.environ, ears):
            simulate_in_engine(play, version=version)
    finally:
        engine = work / "engine"
        answers = {}
        for heard in sorted((engine / "output" / "heard").iterdir()):
            party, found = _hear(heard, transcript, version)
            answers[party] = found
        for k in range(max(map(len, answers.values()), default=0)):
            for party in (*sorted(set(answers) - {"remote"}), "remote"):
                transcript.outputs += [(party, text) for text in answers[party][k : k + 1]]
        for number, line in enumerate(packets.read_text().splitlines()):
            transcript.note(f"packet {number}", line.encode())
            transcript.packets += 1
        for name, path in _left(work, engine):
            transcript.keep(name, path.read_bytes())


PICTURES = (".html", ".png", ".pdf", ".svg")
"""Another library may draw them otherwise."""
OF_A_COMPUTER = ("software", "date")
"""What results say of where and when they were made; methods.md says them in a sentence."""


def content(path: Path) -> Any:
    """Return what a file of results holds wherever it is made, as JSON without `OF_A_COMPUTER`."""
    if path.suffix == ".npz":  # the archive's header depends on Python
        with np.load(path, allow_pickle=False) as stored:
            return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in stored.items()}
    if path.suffix in PICTURES or path.name == "methods.md":
        return b""
    if path.name in ("results.json", "site.json"):
        document = json.loads(path.read_bytes())
        return {key: value for key, value in document.items() if key not in OF_A_COMPUTER}
    return path.read_bytes()


def image_of(computation: str) -> str:
    """Return our image that has a computation: those of the papers are in one of their own."""
    name, _, tag = IMAGE.rpartition(":")
    return f"{compspec.image_name_of(computation, name)}:{tag}"


def derived(dockerfile: str, name: str, files: dict[str, bytes], base: str = IMAGE) -> str:
    """Build an image on ours, ``{image}`` in the Dockerfile, and return its name."""
    context = io.BytesIO()
    named = {**files, "Dockerfile": dockerfile.format(image=base).encode()}
    with tarfile.open(fileobj=context, mode="w") as archive:
        for file, raw in named.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    context.seek(0)
    client = containers.connect()
    try:
        client.images.build(fileobj=context, custom_context=True, tag=name, rm=True)
    finally:
        client.close()
    return name


def _hear(heard: Path, transcript: Any, version: int) -> tuple[str, list[bytes]]:
    """Keep what one container heard; returns its party and the answers that it gave."""
    entries = sorted(heard.iterdir())
    came = next(m[1] for e in entries if e.is_file() and (m := CLIENT.search(e.read_bytes())))
    party, said, answers = came.decode(), b"", []
    for entry in entries:
        _, _, what = entry.name.partition("-")
        if entry.is_dir():
            for path in sorted(entry.rglob("*")):
                if path.is_file():
                    name = path.relative_to(entry).as_posix()
                    transcript.keep(f"{party}/{what}/{name}", path.read_bytes())
            continue
        raw = entry.read_bytes()
        transcript.frames.append((party, "sent" if what == "came" else "received", raw))
        if what != "left":
            continue
        frame = wire.loads(raw, 2**27)
        if version == 2 and frame["type"] == "stdout":
            answers.append(wire.dumps(frame["data"]))
        elif frame["type"] == "stdout":
            said += frame.get("data", "").encode()
        elif frame["type"] == "close":
            answers.append(said.strip())
            said = b""
    return party, answers


def _left(work: Path, engine: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that the run left, named as a transcript names them."""
    for path in sorted(work.rglob("*")):
        if not path.is_file() or (engine / "output" / "heard") in path.parents:
            continue
        inside = path.relative_to(engine) if engine in path.parents else None
        if inside is None:
            yield path.relative_to(work).as_posix(), path
        elif len(inside.parts) > 3 and inside.parts[2] == RUN:
            place = {"input": "base"}.get(inside.parts[0], inside.parts[0])
            yield "/".join((inside.parts[1], place, *inside.parts[3:])), path
        else:
            yield f"engine/{inside.as_posix()}", path
