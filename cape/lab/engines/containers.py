"""A simulated consortium in containers: one per site, one for the aggregator.

It needs the extra ``docker`` and a service with Docker's API (`DOCKER_HOST`).  A container has no
network, a read-only root, no capabilities, a memory limit, and mounts only its site's data,
read-only.  It is removed at the end, or by the next simulation into the same folder.
"""

import hashlib
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cape.engines.coinstac.compspec import image_name_of
from cape.errors import CapeError, ReportedError
from cape.settings.config import PRODUCT, VERSION
from cape.simulation.transports import error_detail
from cape.site.places import HOME_VARIABLE, MAPS_VARIABLE, POLICY_VARIABLE

LABEL = "coinstac-cape.simulation"
WAIT = ["python", "-c", "import signal; signal.sigwait({signal.SIGTERM})"]
POLICY = "/policy/site-policy.toml"
# Stream numbers in the frames of Docker's API
STDOUT, STDERR = 1, 2


def image_for(settings: Mapping[str, object], image: str = "") -> str:
    """Return `image`, or this version's default image that has the run's computation."""
    computation = str(settings.get("computation", PRODUCT))
    return image or f"{image_name_of(computation)}:{VERSION}"


def find_image(settings: Mapping[str, object], image: str = "") -> str:
    """Return the local name of the image of `image_for`; CapeError E290 if it is missing.

    Podman calls local images ``localhost/NAME`` and would fetch NAME from a public registry.
    """
    wanted, client = image_for(settings, image), connect()
    try:
        for name in (wanted, f"localhost/{wanted}"):
            with suppress(_docker().errors.ImageNotFound):
                client.images.get(name)
                return name
    finally:
        client.close()
    raise _no_image(wanted)


def _no_image(name: str) -> CapeError:
    do = "build it: make image, or make image-papers."
    return CapeError("E290", problem=f"there is no image {name}", do=do)


class Containers:
    """One container per party, removed at exit.

    CapeError E290: Docker or the image is missing, or a container ended.
    """

    def __init__(
        self,
        sites: Mapping[str, Path],
        work: Path,
        logs: Path,
        *,
        image: str,
        memory: str,
        maps: Path | None = None,
    ) -> None:
        self._sites, self._work, self._logs = dict(sites), work, logs
        self._image, self._memory, self._maps = image, memory, maps
        self._mark = hashlib.sha256(str(work).encode()).hexdigest()[:16]
        self._clients: dict[str, Any] = {}
        self._containers: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            # One client per party: threads must not share a connection.
            self._clients = {party: connect() for party in (*self._sites, "remote")}
            self._logs.mkdir(parents=True, exist_ok=True)
            # Remove containers of a killed simulation, which still mount this folder.
            self._remove_left_over()
            for party, client in self._clients.items():
                self._containers[party] = self._start(client, party)
        except BaseException:  # Ctrl-C while containers start must not leave them behind
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def places(self, party: str) -> dict[str, str]:
        return {
            "baseDirectory": f"/input/{party}/simulatorRun",
            "outputDirectory": f"/output/{party}/simulatorRun",
            "cacheDirectory": "/tmp",  # noqa: S108 - the container's own, as in the engine
            "transferDirectory": f"/transfer/{party}/simulatorRun",
        }

    def _start(self, client: Any, party: str) -> Any:
        home, places = self._work / party, self.places(party)
        data = self._sites.get(party, home / "base")
        mounts = {
            str(data): {"bind": places["baseDirectory"], "mode": "ro"},
            str(home / "output"): {"bind": places["outputDirectory"], "mode": "rw"},
            str(home / "transfer"): {"bind": places["transferDirectory"], "mode": "rw"},
            str(home / "site-policy.toml"): {"bind": POLICY, "mode": "ro"},
        }
        named = {}
        if self._maps is not None:
            named[MAPS_VARIABLE] = f"/maps/{self._maps.name}"
            mounts[str(self._maps)] = {"bind": named[MAPS_VARIABLE], "mode": "ro"}
        errors = _docker().errors
        try:
            return client.containers.run(
                self._image,
                WAIT,
                detach=True,
                labels={LABEL: self._mark},
                volumes=mounts,
                # A party is reached by exec only.
                network_mode="none",
                mem_limit=self._memory,
                pids_limit=256,
                read_only=True,
                tmpfs={"/tmp": ""},  # noqa: S108
                # Faulty code, too, has no network and no rights.
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                user=_user(client),
                environment={
                    POLICY_VARIABLE: POLICY,
                    # A simulation keeps no files of a site.
                    HOME_VARIABLE: "/tmp/.cape-site",  # noqa: S108
                    "HOME": "/tmp",  # noqa: S108
                    **named,
                },
            )
        except errors.ImageNotFound as err:
            raise _no_image(self._image) from err
        except errors.APIError as err:
            problem = "a container cannot be started"
            do = "try 'docker run --rm --network none' with this image by hand."
            raise CapeError("E290", problem=problem, do=do, detail=str(err)) from err

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        began = time.monotonic()
        code, answer, errors = self._execute(party, ["python", f"/computation/{role}.py"], text)
        self._note(party, f"{role}.py: exit {code}, {time.monotonic() - began:.2f} s", errors)
        if code == 0:
            return answer
        # A party that fails gives a reason; without one, the kernel killed it for its memory.
        if not errors:
            problem = f"the container of {party} ended within a round (exit {code})"
            do = "give it more --memory, or look at its log."
            raise CapeError("E290", problem=problem, do=do)
        public = errors.decode("utf-8", "replace").strip()
        raise ReportedError(public, error_detail(self._work / party / "output"))

    def _execute(self, party: str, command: list[str], text: bytes) -> tuple[int, bytes, bytes]:
        docker, client = _docker(), self._clients[party].api
        try:
            call = client.exec_create(self._containers[party].id, command, stdin=True)
            stream = client.exec_start(call["Id"], socket=True)
            parts: dict[int, list[bytes]] = {STDOUT: [], STDERR: []}
            # Only the socket itself can close one direction.
            with stream, getattr(stream, "_sock", stream) as pipe:
                pipe.settimeout(None)  # no time limit for a round
                with suppress(BrokenPipeError):  # the command ended before reading all input
                    pipe.sendall(text)
                    pipe.shutdown(socket.SHUT_WR)
                for number, data in docker.utils.socket.frames_iter(stream, tty=False):
                    parts[number].append(data)
            code = client.exec_inspect(call["Id"])["ExitCode"]
        except (docker.errors.APIError, OSError) as err:
            problem, do = f"the container of {party} is gone", "start the run again."
            raise CapeError("E290", problem=problem, do=do, detail=str(err)) from err
        out, errors = (b"".join(parts[number]) for number in (STDOUT, STDERR))
        return (137 if code is None else int(code)), out, errors

    def _note(self, party: str, line: str, output: bytes = b"") -> None:
        with (self._logs / f"{party}.log").open("ab") as log:
            log.write(line.encode() + b"\n")
            if output:
                log.write(output.rstrip(b"\n") + b"\n")

    def _remove_left_over(self) -> None:
        client = self._clients["remote"]
        for old in client.containers.list(all=True, filters={"label": f"{LABEL}={self._mark}"}):
            old.remove(force=True)

    def _leave(self) -> None:
        errors = _docker().errors
        for party, container in self._containers.items():
            with suppress(errors.APIError, OSError):
                self._note(party, "container's own output:", container.logs())
        # The label also finds a container that was starting during the interrupt.
        with suppress(KeyError, errors.APIError, OSError):
            self._remove_left_over()
        for client in self._clients.values():
            client.close()
        self._containers, self._clients = {}, {}


def connect() -> Any:
    docker = _docker()
    try:
        client = docker.from_env()
        try:
            client.ping()
        except BaseException:  # raised again; only the connection is closed
            client.close()
            raise
    except (docker.errors.DockerException, OSError) as err:
        do = "start Docker or podman's socket, or name it by DOCKER_HOST."
        problem = "no Docker service answers"
        raise CapeError("E290", problem=problem, do=do, detail=str(err)) from err
    return client


def _docker() -> Any:
    try:
        import docker
        import docker.utils.socket
    except ImportError as err:
        do = "install it: pip install 'coinstac-cape[docker]'."
        raise CapeError("E290", problem="the package docker is missing", do=do) from err
    return docker


def _user(client: Any) -> str:
    # The user must own the results; a rootless service maps root to the user.
    rootless = any("rootless" in option for option in client.info().get("SecurityOptions") or ())
    return "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
