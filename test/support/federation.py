"""FLARE provisioned on this computer: a server and sites as processes of their own, over mTLS.

Everything is FLARE's own: its certificates, its programs with the commands of its start scripts,
its admin session.  `cape flare` writes the parties' own files, as their operators would.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cape.cli import main
from cape.engines.flare.job import read_job
from cape.engines.flare.rounds import AggregatorRounds, RunState
from cape.settings.documents import not_default, toml_text
from cape.site.policy import SitePolicy
from support import consortium as helper

ROOT = Path(__file__).parents[2]
OWNER = "owner@cape.org"
SERVER = "localhost"
START = 120.0
"""Seconds for a server and its sites to find each other, on a busy computer."""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def provision(folder: Path, sites: list[str]) -> Path:
    """Return the folder of the kits that `nvflare provision` makes."""
    port = free_port()
    lines = [
        "api_version: 3", "name: cape", "description: a test", "participants:",
        f"  - {{name: {SERVER}, type: server, org: cape, fed_learn_port: {port},"
        f" admin_port: {port}}}",
        *(f"  - {{name: {site}, type: client, org: cape}}" for site in sites),
        f"  - {{name: {OWNER}, type: admin, org: cape, role: project_admin}}",
        "builders:",
        "  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder",
        "    args: {template_file: [master_template.yml]}",
        "  - path: nvflare.lighter.impl.static_file.StaticFileBuilder",
        "    args: {config_folder: config}",
        "  - path: nvflare.lighter.impl.cert.CertBuilder",
        "  - path: nvflare.lighter.impl.signature.SignatureBuilder",
    ]  # fmt: skip
    (folder / "project.yml").write_text("\n".join(lines) + "\n")
    command = [str(Path(sys.executable).parent / "nvflare"), "provision", "-p", "project.yml"]
    subprocess.run([*command, "-w", "kits"], cwd=folder, check=True, capture_output=True)
    return folder / "kits" / "cape" / "prod_00"


def children(pid: int) -> list[int]:
    """Return the processes that this one started, and theirs."""
    of: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            of.setdefault(parent, []).append(int(entry.name))
    found = of.get(pid, [])
    return found + [grandchild for child in found for grandchild in children(child)]


class Federation:
    """A server, its sites and the owner's session."""

    def __init__(self, folder: Path, data: Path, policy: SitePolicy) -> None:
        self.folder, self.data = folder, data
        # Pictures take longer than all the rest.
        hidden = helper.no_pictures(folder / "hidden")
        self.environment = {**os.environ, "PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}
        # Seconds that a server waits at the end for the word of a site that is gone (docs/flare.md)
        self.environment["NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"] = "5"
        self.sites = sorted(path.name for path in data.iterdir() if path.is_dir())
        self.kits = provision(folder, self.sites)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for site in self.sites:
            self.policy(site).write_text(toml_text(not_default(policy)))
            assert main(["flare", "site", str(self.kits / site), "--data", str(data / site),
                         "--runs", str(self.runs(site)), "--policy",
                         str(self.policy(site)), "--allow"]) == 0  # fmt: skip
        words = ["flare", "server", str(self.kits / SERVER), "--runs", str(self.runs(SERVER))]
        assert main([*words, "--allow"]) == 0

    def runs(self, party: str) -> Path:
        return self.folder / "runs" / party

    def policy(self, site: str) -> Path:
        return self.folder / f"policy-{site}.toml"

    # -- processes

    def start(self, *parties: str) -> None:
        for party in parties or (SERVER, *self.sites):
            is_server = party == SERVER
            module = "server.server_train" if is_server else "client.client_train"
            name = [] if is_server else [f"uid={party}"]
            with (self.folder / f"{party}.out").open("ab") as out:
                self.running[party] = subprocess.Popen(
                    [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}",
                     "-m", str(self.kits / party), "-s",
                     "fed_server.json" if is_server else "fed_client.json",
                     "--set", "secure_train=true", *name, "org=cape", "config_folder=config"],
                    stdout=out, stderr=out, cwd=self.folder, start_new_session=True,
                    env=self.environment,
                )  # fmt: skip

    def jobs_of(self, party: str) -> list[int]:
        """Return the processes in which a party runs a job."""
        return children(self.running[party].pid)

    def kill(self, *parties: str) -> None:
        for party in parties:
            process = self.running.pop(party)
            for pid in [*children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        self.kill(*list(self.running))

    # -- the owner

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        until = time.monotonic() + START
        while True:
            try:
                opened = new_secure_session(OWNER, str(self.kits / OWNER), timeout=10.0)
                break
            except Exception:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        try:
            yield opened
        finally:
            opened.close()

    def connected(self) -> None:
        """Wait until all sites are."""
        found: list[int] = []

        def count() -> None:
            with contextlib.suppress(Exception), self.session() as session:
                found.append(len(session.get_system_info().client_info))

        # A server that has just been started may never answer a session, which has no time limit.
        until = time.monotonic() + START
        while found[-1:] != [len(self.sites)]:
            if time.monotonic() > until:
                raise TimeoutError(self.tail())
            asking = threading.Thread(target=count, daemon=True)
            asking.start()
            asking.join(15.0)

    def submit(self, job: Path) -> str:
        with self.session() as session:
            return str(session.submit_job(str(job)))

    def status(self, job_id: str) -> str:
        with self.session() as session:
            return str(session.get_job_meta(job_id)["status"])

    # -- a run

    def rounds(self, job: Path) -> AggregatorRounds:
        plan = read_job(job)
        return AggregatorRounds(plan.run, plan.settings, self.runs(SERVER))

    def reached(self, job: Path, iteration: int, within: float = 300.0) -> RunState:
        """Return where the run stands once it has come to an exchange, or to its end."""
        rounds, found = self.rounds(job), []

        def there() -> bool:
            state = rounds.state()
            found[:] = [state]
            return state is not None and (state.ended or state.iteration >= iteration)

        self.wait(there, within)
        return found[0]

    def wait(self, done: Callable[[], bool], within: float) -> None:
        until = time.monotonic() + within
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(self.tail())
            time.sleep(0.02)

    def tail(self) -> str:
        logs = [*self.folder.glob("*.out"), *self.runs(SERVER).glob("*/output/site-error.txt")]
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in logs)
