"""The one place of the golden tests that knows the insides of `cape`.

A redesign changes this file and nothing else of test/golden: how a command is called, how the wire
of a run in memory and of a run in processes is heard, and how a consortium of arrays is run.
"""

import base64
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROLES = ("local", "remote")
"""Last word of what process mode starts for each party, a new process per round."""


@dataclass(frozen=True)
class Heard:
    """One message of a run: `content` is what crossed the wire, large arrays put back inside."""

    # The site that replied, "broadcast" for the aggregator, or "engine" for what the aggregator's
    # process tells COINSTAC itself when a run has ended
    party: str
    content: bytes
    files: tuple[str, ...] = ()  # that carried large arrays beside the message

    @property
    def document(self) -> Any:
        return json.loads(self.content)


def imported_from() -> Path:
    """Return the folder that holds the package `cape`."""
    import cape

    return Path(cape.__file__).resolve().parents[1]


def command(arguments: list[str]) -> int:
    """Run one `cape` command in this process and return its exit code."""
    from cape.cli import main

    return main(arguments)


def defect(folder: Path) -> None:
    """Break the data of the second site as the folder's name says."""
    from support.defects import make_defect

    make_defect(folder.name.removeprefix("data-"), folder / "local1")


def pinned_keys(folder: Path) -> None:
    """Give every site of a consortium a fixed identity key and the list of all public keys."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    roster, sites = {}, sorted(path for path in folder.iterdir() if path.is_dir())
    for site in sites:
        secret = hashlib.sha256(site.name.encode()).digest()
        (site / "identity_key").write_text(secret.hex() + "\n", encoding="ascii")
        (site / "identity_key").chmod(0o600)
        public = Ed25519PrivateKey.from_private_bytes(secret).public_key()
        roster[site.name] = public.public_bytes_raw().hex()
    for site in sites:
        (site / "roster.json").write_text(json.dumps(roster), encoding="utf-8")


def arrays(out: Path) -> None:
    """Run consortia of arrays by the Python interface, and write what it returns."""
    import numpy as np

    import cape

    rng = np.random.default_rng(12)
    common = rng.standard_normal((30, 3))
    sites = {
        name: [common @ rng.laplace(size=(3, 60)) + rng.standard_normal((30, 60)) for _ in range(n)]
        for name, n in (("a", 3), ("b", 2), ("c", 2))
    }
    settings: dict[str, object] = {"n_components": 3, "n_rounds": 3, "min_timepoints": 50}
    settings["accept_low_quality"] = True  # of seven people
    people = {site: [X.T for X in group] for site, group in sites.items()}
    consortium = cape.Consortium(people, truth=common)
    result = consortium.run(epsilon=20.0, delta=1e-5, settings=settings, seed=5)
    result.write(out / "result")
    for name in ("maps", "unmixing", "spatial_maps"):
        np.save(out / f"{name}.npy", getattr(result, name))
    told = (result.status, result.stability, result.q_ngi, result.map_correlation, result.warnings)
    (out / "told.txt").write_text(repr(told), encoding="utf-8")
    del settings["n_components"]
    model = cape.JointICA(3, epsilon=20.0, settings=settings, random_state=5)
    courses = model.fit_transform(list(people.values()))
    np.save(out / "components.npy", model.components_)
    np.save(out / "courses.npy", np.concatenate(courses))


@contextmanager
def listening(heard: list[Heard]) -> Iterator[None]:
    """Add every message of the runs in this block to `heard`, through memory or processes."""
    # A run in memory hands over objects: they are written as the wire would carry them.  Of a run
    # in processes the bytes are those on the standard output of each process.
    with _in_memory(heard), _in_processes(heard):
        yield


@contextmanager
def _in_memory(heard: list[Heard]) -> Iterator[None]:
    from cape.engines.coinstac.documents import encode_broadcast, reply_document
    from cape.protocol import wire
    from cape.simulation import memory

    real = memory.advance_aggregator

    def advance(state: Any, inbox: Any, party: Any) -> Any:
        for site in sorted(inbox):
            heard.append(Heard(site, wire.dumps(reply_document(inbox[site]))))
        after = real(state, inbox, party)
        if not after[2]:  # the last one goes to nobody
            heard.append(Heard("broadcast", wire.dumps(encode_broadcast(after[1]))))
        return after

    with mock.patch.object(memory, "advance_aggregator", advance):
        yield


@contextmanager
def _in_processes(heard: list[Heard]) -> Iterator[None]:
    """Hear the documents of COINSTAC's contract: one process, JSON in, JSON out."""
    # Sites answer side by side, so an exchange is put in order when its aggregator answers.
    real, lock, waiting = subprocess.run, threading.Lock(), {}

    def run(arguments: Any, *rest: Any, **named: Any) -> Any:
        done = real(arguments, *rest, **named)
        role = arguments[-1] if isinstance(arguments, list) else ""
        if role not in ROLES or done.returncode:
            return done
        state = json.loads(named["input"])["state"]
        message = _message(done.stdout, Path(state["transferDirectory"]))
        with lock:
            if role == "local":
                waiting[state["clientId"]] = message
            else:
                heard.extend(Heard(site, *waiting[site]) for site in sorted(waiting))
                ended = json.loads(done.stdout)["success"]
                heard.append(Heard("engine" if ended else "broadcast", *message))
                waiting.clear()
        return done

    with mock.patch.object(subprocess, "run", run):
        yield


def _message(stdout: bytes, transfer: Path) -> tuple[bytes, tuple[str, ...]]:
    """Return what a process sent, and the files it left for others."""
    output = json.loads(stdout)["output"]
    raw = _compact(output)
    if raw not in stdout:  # other blanks or escapes: these are the bytes that count then
        raw = b"not compact: " + stdout
        return raw, ()
    files: list[str] = []

    def inside(node: Any) -> Any:
        if isinstance(node, dict) and set(node) == {"file", "sha256", "shape"}:
            files.append(node["file"])
            content = (transfer / node["file"]).read_bytes()
            return {"base64": base64.b64encode(content).decode(), "shape": node["shape"]}
        if isinstance(node, dict):
            return {key: inside(value) for key, value in node.items()}
        return [inside(value) for value in node] if isinstance(node, list) else node

    return _compact(inside(output)), tuple(files)


def _compact(document: Any) -> bytes:
    """Return JSON without blanks, its keys in the order they came in."""
    return json.dumps(document, separators=(",", ":")).encode("ascii")
