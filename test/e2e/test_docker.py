"""A consortium in containers of its own: `cape simulate --through docker`.

Needs a Docker service and the image of this project (`make test-engine` gives both); the marker
`docker` keeps these tests out of the default run.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cape.errors import CapeError
from cape.lab.engines import containers as container
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.python.api import simulate
from support.comparison_study import write_study
from support.engines import IMAGE, content

pytestmark = [
    pytest.mark.docker,
    # The SDK leaves streams of builds and logs to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Of images of brains temporal ICA is refused under noise, whatever its epsilon.
SETTINGS = {
    "epsilon": 8.0, "delta": 1e-3, "n_rounds": 2, "min_timepoints": 50, "accept_low_quality": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def consortium(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("consortium") / "data"
    write_consortium(
        folder,
        Request(preset="brain", n_sites=3, n_subjects=9, n_timepoints=60, n_networks=3, seed=1),
    )
    return folder


def ours() -> list[str]:
    """Return the containers of simulations that are left."""
    client = container.connect()
    try:
        return [c.id for c in client.containers.list(all=True, filters={"label": container.LABEL})]
    finally:
        client.close()


def files(folder: Path) -> dict[str, object]:
    """Return the results by name; pages hold pictures that another library may draw otherwise.

    Without run.json, which says the way it went.
    """
    return {
        str(path.relative_to(folder)): content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"container-logs", "run.json"} & set(path.parts)
    }


@pytest.mark.parametrize("through", ["docker", pytest.param("coinstac", marks=pytest.mark.engine)])
@pytest.mark.parametrize("what", ["columns", "images"])
def test_groups_are_compared_with_the_bytes_of_memory(tmp_path, what, through):
    """Of images with maps that lie in no site's folder."""
    study, asked = write_study(tmp_path, what)
    for how in ("memory", through):
        # COINSTAC's sites draw their pages themselves.
        simulate(study, out=tmp_path / how, through=how, image=IMAGE, all_pages=True, **asked)
    found = files(tmp_path / through)
    assert files(tmp_path / "memory") == found
    assert "consortium/effects.tsv" in found
    assert ours() == []


class Halted:
    """Calls a function when the run comes to an exchange."""

    def __init__(self, exchange: int, act) -> None:
        self.exchange, self.act = exchange, act

    def __call__(self, line) -> None:
        if line.exchange == self.exchange:
            self.act()


def test_a_container_that_is_killed_ends_the_run_with_its_name(consortium, tmp_path):
    def kill() -> None:
        client = container.connect()
        for found in client.containers.list(filters={"label": container.LABEL}):
            mounts = found.attrs["Mounts"] or found.client.api.inspect_container(found.id)["Mounts"]
            if any("/input/local1/" in mount["Destination"] for mount in mounts):
                found.kill()
        client.close()

    with pytest.raises(CapeError, match="CAPE-E290 the container of local1") as caught:
        simulate(consortium, out=tmp_path, through="docker", settings=SETTINGS, image=IMAGE,
                 on_progress=Halted(3, kill))  # fmt: skip
    assert "start the run again" in caught.value.public or "--memory" in caught.value.public
    assert ours() == []
    assert not (tmp_path / "consortium").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_simulation_leaves_no_container(consortium, tmp_path, number):
    """After SIGKILL nobody can tidy up, so the next run with the same --out does (--replace)."""
    command = [sys.executable, "-m", "cape", "simulate", str(consortium), "--through", "docker",
               "--out", str(tmp_path), "--image", IMAGE, "--epsilon", "8", "--delta", "1e-3",
               "--set", "n_rounds=2", "--set", "min_timepoints=50",
               "--set", "accept_low_quality=true", "--json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        next(line for line in running.stdout if '"exchange"' in line)  # the first one is done
        during = len(ours())
        running.send_signal(number)
        running.wait(30)
    assert (during, len(ours())) == (4, 0 if number == signal.SIGTERM else 4)
    if number == signal.SIGKILL:
        simulate(
            consortium, out=tmp_path, through="docker", settings=SETTINGS, image=IMAGE, replace=True
        )
        assert ours() == []


def test_a_site_cannot_reach_a_network_another_site_or_its_own_data_for_writing(
    consortium, tmp_path
):
    sites = {f"local{s}": consortium / f"local{s}" for s in range(3)}
    work = tmp_path / "work"
    from cape.simulation.transports import make_places
    from cape.site.policy import SitePolicy

    make_places((*sites, "remote"), SitePolicy.of_simulation(), work)
    with container.Containers(
        sites, work, tmp_path / "logs", image=IMAGE, memory="4g"
    ) as containers:

        def run(program: str) -> int:
            return containers._execute("local0", ["python", "-c", program], b"")[0]

        assert run("import os; os.listdir('/input/local0/simulatorRun')") == 0
        assert run("open('/output/local0/simulatorRun/x', 'w')") == 0
        assert run("open('/input/local0/simulatorRun/x', 'w')") == 1
        assert run("open('/computation/x', 'w')") == 1
        assert run("import os; os.listdir('/input/local1')") == 1
        assert run("import socket; socket.create_connection(('10.0.0.1', 80), 2)") == 1
        limit = containers._containers["local0"].attrs["HostConfig"]["Memory"]
        assert limit in (0, 4 * 2**30)
    assert ours() == []


def test_too_little_memory_is_said(consortium, tmp_path):
    with pytest.raises(CapeError, match=r"E290 .*--memory"):
        simulate(consortium, out=tmp_path, through="docker", settings=SETTINGS, image=IMAGE,
                 memory="24m")  # fmt: skip
    assert ours() == []


def test_a_missing_image_and_a_missing_service_say_what_to_do(consortium, tmp_path, monkeypatch):
    with pytest.raises(CapeError, match="there is no image absent:1; build it: make image"):
        simulate(consortium, out=tmp_path, through="docker", settings=SETTINGS, image="absent:1")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    began = time.monotonic()
    with pytest.raises(CapeError, match="no Docker service answers; start Docker"):
        simulate(
            consortium, out=tmp_path, through="docker", settings=SETTINGS, image=IMAGE, replace=True
        )
    assert time.monotonic() - began < 10
