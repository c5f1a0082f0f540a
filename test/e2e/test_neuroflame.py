"""NeuroFLAME's own framework, where a checkout of its boilerplate is given.

    CAPE_NEUROFLAME=/path/to/checkout CAPE_NEUROFLAME_PYTHON=/path/to/venv/bin/python \
        python -m pytest test/e2e/test_neuroflame.py

The Python has the boilerplate's `requirements.txt`, and this package, installed.  The checkout has
no licence, so nothing of it is here; it is copied, and stays as it is.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cape.engines.neuroflame import author_files
from cape.kernels import PREFIXES
from support.federation import free_port
from support.flare import contents

ROOT = Path(__file__).parents[2]
CHECKOUT = os.environ.get("CAPE_NEUROFLAME", "")
PYTHON = os.environ.get("CAPE_NEUROFLAME_PYTHON", "")
SITES = ("site1", "site2", "site3")
POLICY = (
    "simulation_seed = 11\nallow_not_private = true\nprivate_results = true\n"
    'ledger_file = "none"\nmax_total = []\n'
)
# What `simulate` adds to results of its own: that all sites were on one computer.
MARKED = ("index.html", "methods.md", "results.json")
MEMORY = """
import json, sys
from pathlib import Path
from cape.simulation.run_loop import RunOptions
from cape.simulation.simulate import simulate
from cape.site.policy import SitePolicy
settings = json.loads(Path(sys.argv[1]).read_text())
policy = SitePolicy.of_simulation(private_results=True)
simulate(Path(sys.argv[2]), RunOptions(out=Path(sys.argv[3]), seed=11, policy=policy,
         settings={**settings, "site_names": ""}, all_pages=True))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHECKOUT and PYTHON), reason="CAPE_NEUROFLAME names no checkout"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Path, Path, dict[str, bytes]]:
    """A checkout with our author files, the sites' data, and what `memory` makes of them."""
    top = tmp_path_factory.mktemp("neuroflame")
    checkout, data = top / "checkout", top / "data"
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".git"))
    author_files.lay(checkout)
    for number, site in enumerate(SITES):
        source = ROOT / "test" / "input" / f"local{number}" / "simulatorRun"
        # The shipped policy of the demonstration is not of this run, which has a seed.
        shutil.copytree(source, data / site, ignore=shutil.ignore_patterns("*.toml"))
    parameters = checkout / "test_data" / "server" / "parameters.json"
    called(top, "-c", MEMORY, str(parameters), str(data), str(top / "memory"))
    return checkout, data, contents(top / "memory" / "consortium")


def site_data(data: Path, site: str, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(data / site, target)
    (target / "site-policy.toml").write_text(POLICY)


def equal(found: dict[str, bytes], wanted: dict[str, bytes], party: str) -> None:
    for name, content in wanted.items():
        if name not in MARKED:
            assert found[name] == content, f"{party}: {name}"
    ours, theirs = (json.loads(files["results.json"]) for files in (wanted, found))
    assert {**theirs, "simulation": True} == ours


def test_its_pins_and_ours_install_together() -> None:
    done = subprocess.run(
        [PYTHON, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_run_in_its_simulator_leaves_the_bytes_of_memory(study) -> None:
    checkout, data, wanted = study
    for site in SITES:
        site_data(data, site, checkout / "test_data" / site)
    called(checkout, "makeJob.py", ",".join(SITES))
    called(checkout, "debugger.py", "./job", "-n", "3", "-c", ",".join(SITES), "-t", "3")
    for party in ("server", *SITES):
        equal(contents(checkout / "test_output" / "simulate_job" / party), wanted, party)


# What its image and its application do: the container's folders, and nothing else of this computer
# but its programs.  The namespaces, mounts and processes of a party end with the first of these.
CONTAINER = """
set -eu
root=$1; shift
mount -t tmpfs tmpfs "$root"
for there in /*; do
    case $there in /workspace | /provisioning) continue ;; esac
    if [ -L "$there" ]; then cp -P "$there" "$root$there"
    elif [ -d "$there" ]; then mkdir "$root$there"; mount --rbind "$there" "$root$there"; fi
done
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
exec chroot "$root" /bin/sh -c 'cd /workspace && exec "$@"' sh "$@"
"""


class Containers:
    """Parties as NeuroFLAME starts them, without docker."""

    def __init__(self, checkout: Path, top: Path) -> None:
        self.checkout, self.top = checkout, top
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, party: str, entry: str, mounts: dict[str, Path]) -> None:
        home = self.top / party
        (home / "root").mkdir(parents=True)
        of_image = {f"/workspace/{name}": self.checkout / name for name in ("app", "system")}
        pairs = [str(w) for there, here in {**of_image, **mounts}.items() for w in (here, there)]
        command = [
            "unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child",
            "sh", "-c", CONTAINER, "sh", str(home / "root"), *pairs, "--",
            PYTHON, "-W", "ignore", f"/workspace/system/{entry}.py",
        ]  # fmt: skip
        environment = {
            # The kernels of linear algebra, without which the last digit of a share differs
            **{name: value for name, value in os.environ.items() if name.startswith(PREFIXES)},
            "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "SOURCE_DATE_EPOCH": "0",
            "PYTHONPATH": "/workspace/app/code/",
            "DATA_DIR": "/workspace/data/",
            "OUTPUT_DIR": "/workspace/output/",
            "PARAMETERS_FILE_PATH": "/workspace/runKit/parameters.json",
        }
        with (home / "log").open("ab") as log:
            self.running[party] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def says(self, party: str, text: str, within: float = 120.0) -> None:
        until = time.monotonic() + within
        while text not in (self.top / party / "log").read_text():
            assert time.monotonic() < until, (self.top / party / "log").read_text()[-3000:]
            time.sleep(0.1)

    def ended(self, party: str, within: float) -> None:
        code = self.running[party].wait(within)
        assert code == 0, (self.top / party / "log").read_text()[-3000:]

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def containers(study, tmp_path) -> Iterator[Containers]:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("its entry points have fixed folders: they need namespaces of root on Linux")
    made = Containers(study[0], tmp_path)
    yield made
    made.stop()


def test_its_entry_points_leave_the_bytes_of_memory(study, containers, tmp_path) -> None:
    """Provisioned with mTLS by `entry_provision`; `entry_central` and three `entry_edge` run it."""
    checkout, data, wanted = study
    kits = tmp_path / "provisioning"
    kits.mkdir()
    parameters = (checkout / "test_data" / "server" / "parameters.json").read_text()
    given = {
        "users": [{"id": f"user-{site}", "name": site} for site in SITES],
        "computation_parameters": parameters,
        "fed_learn_port": free_port(),
        "host_identifier": "localhost",
    }
    (kits / "provision_input.json").write_text(json.dumps(given))
    containers.start("provision", "entry_provision", {"/provisioning": kits})
    containers.ended("provision", 300)
    output = {party: tmp_path / "output" / party for party in ("server", *SITES)}
    for folder in output.values():
        folder.mkdir(parents=True)
    kit = {"server": kits / "runKits" / "centralNode"}
    kit |= {site: kits / "runKits" / f"user-{site}" for site in SITES}
    for party, entry in (("server", "entry_central"), *((site, "entry_edge") for site in SITES)):
        mounts = {"/workspace/runKit": kit[party], "/workspace/output": output[party]}
        if party in SITES:
            site_data(data, party, tmp_path / "data" / party)
            mounts["/workspace/data"] = tmp_path / "data" / party
        containers.start(party, entry, mounts)
        if party == "server":
            # Its owner's session has ten seconds to find it: nobody else is started meanwhile.
            containers.says("server", "Server started")
    for party in ("server", *SITES):
        containers.ended(party, 1800)
        equal(contents(output[party]), wanted, party)


def called(folder: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(folder / "app" / "code")
    environment["PATH"] = f"{Path(PYTHON).parent}:{environment['PATH']}"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", *words], cwd=folder, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
