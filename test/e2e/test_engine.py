"""The consortium of capedjica in COINSTAC's own engine.

At every push (`make test-engine`) the product and one of tables are played; `make test-trust`: all.
Nothing here is emulated: the engine's packages under node, its broker, its containers, our image.
The marker `engine` keeps these tests out of the default run; `packaging/with-engine.sh` gives them
node packages, a container service and the image.
"""

import dataclasses
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.computations import names
from cape.engines.coinstac import compspec
from cape.engines.coinstac.site import SITE_INPUTS
from cape.lab.engines import containers as container
from cape.lab.engines.coinstac import RUN, SITE_FILES, PartyEnd, adapted, run_engine
from cape.protocol import wire
from cape.settings.config import FRONT
from cape.settings.documents import not_default, toml_text
from cape.simulation.transports import DocumentTransport
from cape.site.policy import SitePolicy
from support.engines import IMAGE, content, image_of
from support.simulation import simulate

pytestmark = [
    pytest.mark.engine,
    # The SDK leaves streams of builds and logs to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = Path(__file__).parents[2]
# Of the computation with rounds: what breaks in a run has more places to break
DATA = ROOT / "compspecs" / "capedjica" / "test"
SEED = 11
POLICY = SitePolicy.of_simulation(private_results=True,
                    simulation_seed=SEED)  # fmt: skip
SITES = ("local0", "local1", "local2")


def inputs() -> dict[str, dict[str, Any]]:
    """Return what inputspec.json gives to each site."""
    listed = json.loads((DATA / "inputspec.json").read_text())
    return {
        site: {name: given["value"] for name, given in one.items()}
        for site, one in zip(SITES, listed, strict=True)
    }


@dataclasses.dataclass
class Played:
    """A finished run of the engine."""

    folder: Path
    ends: dict[str, PartyEnd]
    starts: list[float]
    """When each iteration began, s."""
    seconds: float

    def output(self, site: str) -> Path:
        return self.folder / "output" / site / RUN

    @property
    def median_ms(self) -> float:
        steps = np.diff(self.starts)
        return 1000 * statistics.median(steps)

    @property
    def errors(self) -> set[str]:
        return {end.error for end in self.ends.values()}

    def said(self) -> str:
        """Return everything that others can read: errors, final outputs, logs of containers."""
        logs = [path.read_text(errors="replace") for path in (self.folder / "logs").iterdir()]
        ends = [json.dumps(dataclasses.asdict(end)) for end in self.ends.values()]
        return "\n".join([*logs, *ends, (self.folder / "engine.log").read_text(errors="replace")])


def lay_out(folder: Path) -> None:
    """Copy its data to where the engine looks, with a policy that sets the seed."""
    shutil.copytree(DATA / "input", folder / "input")
    for site in SITES:
        (folder / "input" / site / RUN / "site-policy.toml").write_text(
            toml_text(not_default(POLICY))
        )


def play(
    folder: Path,
    given: dict[str, dict[str, Any]] | None = None,
    *,
    version: int = 2,
    image: str = IMAGE,
    others: dict[str, str] | None = None,
    at: int = 0,
    act: Callable[[Path], None] = lambda folder: None,
) -> Played:
    """Run the consortium that lies in `folder`; `act` happens when iteration `at` begins."""
    if not (folder / "input").exists():
        lay_out(folder)
    document = compspec.compspec_of("capedjica")
    starts: list[float] = []
    acting: list[threading.Thread] = []

    def on_iteration(iteration: int) -> None:
        if iteration > len(starts):
            starts.append(time.monotonic())
            if iteration == at:
                acting.append(threading.Thread(target=act, args=(folder,)))
                acting[0].start()

    mapped = {
        site: {**one, "policy": ["site-policy.toml"]} for site, one in (given or inputs()).items()
    }
    began = time.monotonic()
    ends = run_engine(
        folder,
        adapted(document, image=image, version=version),
        mapped,
        others={
            party: adapted(document, image=other, version=version)
            for party, other in (others or {}).items()
        },
        on_iteration=on_iteration,
    )
    seconds = time.monotonic() - began
    for thread in acting:
        thread.join()
    assert at == 0 or acting, f"the run never came to iteration {at}"
    return Played(folder, {end.party: end for end in ends}, starts, seconds)


def say(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  engine: {text}\n")


# -- the same run without an engine ----------------------------------------------------------------


def without_engine(folder: Path, given: dict[str, Any]) -> tuple[Path, list[dict[str, int]]]:
    """Return results of `--through wire` with the same seed, and the sizes of all messages."""
    for site in SITES:
        shutil.copytree(ROOT / "test" / "input" / site / RUN, folder / "data" / site)
    settings = {name: value for name, value in given.items() if name not in SITE_INPUTS}
    sizes: list[dict[str, int]] = []
    real = DocumentTransport._ask

    def ask(self, role, party, message):
        answer = real(self, role, party, message)
        if party == "local0":
            sizes.append({"reply": answer[2], "site_cache": size(self._caches[party])})
        if party == "remote":
            sizes[-1]["broadcast"] = answer[2]
            sizes[-1]["aggregator_cache"] = size(self._caches[party])
        return answer

    def size(document) -> int:
        return len(wire.dumps(document))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentTransport, "_ask", ask)
        simulate(folder / "data", out=folder / "out", through="wire", seed=SEED,
                 settings=settings, policy=POLICY)  # fmt: skip
    return folder / "out", sizes


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> tuple[Path, list[dict[str, int]]]:
    return without_engine(tmp_path_factory.mktemp("wire"), inputs()["local0"])


def contents(folder: Path) -> dict[str, Any]:
    """Return what files hold, by name, wherever they were made."""
    return {
        str(path.relative_to(folder)): content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def without_score(found: dict[str, Any]) -> dict[str, Any]:
    """Drop what a simulation adds to its results afterwards: they say that they are one."""
    return {
        name: {k: v for k, v in value.items() if k not in ADDED_BY_SIMULATE}
        if name.endswith("results.json")
        else value
        for name, value in found.items()
    }


ADDED_BY_SIMULATE = ("simulation", "synthetic", "q_ngi", "map_correlation")


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.push)])
def version(request) -> int:
    return request.param


@pytest.fixture(scope="module")
def run(version, tmp_path_factory) -> Played:
    return play(tmp_path_factory.mktemp(f"version-{version}"), version=version)


def test_every_site_gets_the_results_of_the_same_run_without_an_engine(
    run, version, expected, capsys
):
    out, sizes = expected
    assert {end.party: end.fulfilled for end in run.ends.values()} == dict.fromkeys(
        ("remote", *SITES), True
    )
    assert len(run.starts) == len(sizes)
    common = without_score(contents(out / "consortium"))
    for site in SITES:
        found = without_score(contents(run.output(site)))
        own = {n: v for n, v in found.items() if n.split("/")[0] in SITE_FILES}
        assert {n: v for n, v in found.items() if n not in own} == common
        assert own == contents(out / site)
        assert {"index.html", "group_maps.nii.gz", "privacy.json", "results.json"} <= set(found)
        assert not (run.output(site) / ".cape").exists()
    results = json.loads((run.output("local0") / "results.json").read_text())
    assert (results["private"], results["epsilon"]) == (False, None)  # seeded: stamped so
    pace = f"median {run.median_ms:.0f} ms per iteration, {run.seconds:.1f} s in all"
    say(capsys, f"version {version}: {len(run.starts)} iterations, {pace}")


# -- faults ----------------------------------------------------------------------------------------


def container_of(client: Any, folder: Path, role: str) -> Any:
    """Return a running container of this run by what its log says it is: site or aggregator."""
    for found in client.containers.list():
        mounts = client.api.inspect_container(found.id)["Mounts"]
        ours = any(str(mount["Source"]).startswith(str(folder)) for mount in mounts)
        # Not the first line: a service says first whether it asks for a token.
        if ours and f"{role} answered" in found.logs().decode():
            return found
    raise AssertionError(f"no container of a {role}: {client.containers.list()}")


def services() -> list[int]:
    """Return the service processes of all containers, which this name space can see."""
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and b"cape.engines.coinstac.service" in command_line(path)
    ]


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # ended meanwhile
        return b""


def held_aggregator(client: Any, folder: Path) -> int:
    """Stop the aggregator where it is and let all sites go on; returns its process.

    All are stopped at once, because the run takes a second and finding out who is who takes that
    long too; and by a signal, because pausing needs a freezer that not all hosts have.
    """
    found = services()
    for process in found:
        os.kill(process, signal.SIGSTOP)
    kept = 0
    try:
        one = container_of(client, folder, "aggregator")
        kept = int(client.api.inspect_container(one.id)["State"]["Pid"])
        assert kept in found
    finally:  # a run whose parties all stand still has no end
        for process in found:
            if process != kept:
                os.kill(process, signal.SIGCONT)
    time.sleep(3)  # the sites come to where they wait for it
    return kept


def kill_between_rounds(folder: Path) -> None:
    """Hold the aggregator, let all sites answer, kill an idle site, go on."""
    client = container.connect()
    aggregator = held_aggregator(client, folder)
    site = container_of(client, folder, "site")
    site.kill()
    site.wait(timeout=20)  # gone, not going: the engine must find it so
    os.kill(aggregator, signal.SIGCONT)
    client.close()


def test_a_container_killed_between_rounds_changes_nothing(tmp_path, expected, capsys):
    out, _ = expected
    run = play(tmp_path / "engine", at=4, act=kill_between_rounds)
    assert all(end.fulfilled for end in run.ends.values()), run.errors
    maps = "unmixing.npz"
    assert contents(run.output("local1"))[maps] == contents(out / "consortium")[maps]
    say(capsys, f"killed between rounds: same maps, {run.seconds:.0f} s")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.push] * (name == "capemean"))
        for name in names()
        if name != "capedjica"
    ],
)
def test_the_folder_of_every_other_computation_runs_in_the_engine(name, tmp_path):
    """Its compspec, its inputspec, its data: what COINSTAC's simulator is pointed at."""
    folder = ROOT if name == FRONT else ROOT / "compspecs" / name
    shutil.copytree(folder / "test" / "input", tmp_path / "input")
    listed = json.loads((folder / "test" / "inputspec.json").read_text())
    given = {
        site: {key: entry["value"] for key, entry in one.items()}
        for site, one in zip(SITES, listed, strict=True)
    }
    document = json.loads((folder / "compspec.json").read_text())
    ends = run_engine(tmp_path, adapted(document, image=image_of(name), version=2), given)
    assert all(end.fulfilled for end in ends), [end.error for end in ends]
    assert {end.output["summary"]["computation"] for end in ends} == {name}


def test_the_image_brings_its_list_of_fonts_for_any_user():
    """Made anew it takes seconds, in every container that draws a page."""
    program = (
        "import os; from cape.report.plots import has_matplotlib; assert has_matplotlib();"
        "from matplotlib import font_manager, get_cachedir; (file,) = os.listdir(get_cachedir());"
        "made = '/opt/cape/fonts/' + file; own = os.path.join(get_cachedir(), file);"
        "print(open(made).read() == open(own).read(), os.access(made, os.W_OK))"
    )
    client = container.connect()
    try:
        said = client.containers.run(
            IMAGE, ["python", "-c", program], user="12345:12345", remove=True
        ).decode()
    finally:
        client.close()
    assert said.split() == ["True", "False"]


def test_nothing_is_left_behind(tmp_path):
    client = container.connect()
    try:
        assert client.containers.list(all=True) == []
    finally:
        client.close()


# -- the image -------------------------------------------------------------------------------------


def test_the_image_is_small_and_starts_quickly(capsys):
    client = container.connect()
    try:
        found = client.images.get(IMAGE)
        labels = found.labels
        layers = client.api.history(IMAGE)
        base = client.images.list("localhost/cape-base")
        added = found.attrs["Size"] - (base[0].attrs["Size"] if base else 0)
        assert added <= 900e6
        program = (
            "import subprocess, time; began = time.monotonic();"
            "text = subprocess.run(['cape', '--version'], capture_output=True).stdout.decode();"
            "print(text.split()[1], round(time.monotonic() - began, 2))"
        )
        words = client.containers.run(IMAGE, ["python", "-c", program], remove=True,
                                      network_mode="none").decode().split()  # fmt: skip
    finally:
        client.close()
    assert words[0] == labels["org.opencontainers.image.version"]
    assert len(labels["org.opencontainers.image.revision"]) >= 7
    say(capsys, f"image: {found.attrs['Size'] / 1e6:.0f} MB, {added / 1e6:.0f} MB of them ours, "
                f"{len(layers)} layers; cape --version in {words[1]} s")  # fmt: skip


def test_sigterm_stops_the_service_with_exit_0(capsys):
    client = container.connect()
    try:
        one = client.containers.run(IMAGE, detach=True, network_mode="none")
        listening = ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8881))"]
        while one.exec_run(listening).exit_code != 0:
            time.sleep(0.2)
        began = time.monotonic()
        one.kill("SIGTERM")
        code = one.wait(timeout=30)["StatusCode"]
        seconds = time.monotonic() - began
        one.remove(force=True)
    finally:
        client.close()
    assert code == 0
    say(capsys, f"SIGTERM: exit 0 after {seconds:.2f} s")


def test_nothing_of_the_engine_outlives_who_started_it(tmp_path) -> None:
    """A caller's time-out ended the script, and its build went on for minutes."""
    mark, programs, there = "97531", tmp_path / "programs", tmp_path / "building"
    programs.mkdir()
    slow = f'case "$*" in *" build "*) touch {there}; exec sleep {mark} ;; esac'
    for name in ("podman", "npm", "apt-get", "debootstrap"):
        (programs / name).write_text(f"#!/bin/sh\n{slow if name == 'podman' else ''}\n")
        (programs / name).chmod(0o755)
    apart = ("CAPE_ENGINE", "DOCKER_HOST", "CAPE_ENGINE_TESTS")
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    environment |= {
        "PATH": f"{programs}:{os.environ['PATH']}", "CAPE_ENGINE_FOLDER": str(tmp_path / "engine"),
    }  # fmt: skip

    def until(done: Callable[[], bool]) -> None:
        end = time.monotonic() + 300
        while not done():
            assert time.monotonic() < end
            time.sleep(0.05)

    def building() -> bool:
        lines = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
        return any(mark.encode() in line for line in lines)

    script = subprocess.Popen([ROOT / "packaging" / "with-engine.sh", "true"], env=environment)
    try:
        until(lambda: there.exists() and building())
    finally:
        script.terminate()
        script.wait()
    until(lambda: not building())
