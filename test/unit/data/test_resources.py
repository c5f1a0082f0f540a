"""What reading takes of a computer: memory, disk, processors."""

import os
from pathlib import Path

import pytest

from cape.data import resources
from cape.data.resources import free_memory, jobs, processors


def test_where_a_system_does_not_say_which_processors_all_are_counted(monkeypatch):
    """macOS has no `sched_getaffinity`."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()


class Computer:
    """A computer of 64 GB, on which this process is in some control group."""

    def __init__(self, top: Path) -> None:
        self.top, self.files = top, {"meminfo": "MemTotal: 0 kB\nMemAvailable:   64000000 kB\n"}

    def write(self, **groups: dict[str, str]) -> None:
        for name, text in self.files.items():
            (self.top / name).write_text(text)
        for place, files in groups.items():
            folder = self.top / "groups" / place.replace("__", "/").strip("/")
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text)


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computer:
    monkeypatch.setattr(resources, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(resources, "OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resources, "GROUPS_FOLDER", tmp_path / "groups")
    for name in resources.SLURM_MEMORY:
        monkeypatch.delenv(name, raising=False)
    return Computer(tmp_path)


GB = 10**9


def test_a_job_of_a_cluster_has_the_memory_of_its_control_group(computer: Computer) -> None:
    """`cape validate` in a job of 4 GB on a node of 64 said that 60 were free."""
    computer.files["cgroup"] = "0::/slurm/job_7/step_0\n"
    computer.write()
    assert free_memory() == 64_000_000 * 1024
    computer.write(
        slurm__job_7={"memory.max": "4000000000\n", "memory.current": "1500000000\n",
                      "memory.stat": "anon 9\ninactive_file 500000000\n"},
        slurm__job_7__step_0={"memory.max": "max\n", "memory.current": "1\n"},
    )  # fmt: skip
    assert free_memory() == 3 * GB
    assert jobs(GB) == 1  # half of it
    computer.write(slurm__job_7={"memory.current": "4500000000"})
    assert free_memory() == 1  # known to be nothing: 0 would say that it is not known


def test_a_container_sees_its_own_group_as_the_top(computer: Computer) -> None:
    computer.files["cgroup"] = "0::/../../elsewhere\n"
    (computer.top / "groups").mkdir()
    computer.write(__={"memory.max": "2000000000", "memory.current": "500000000"})
    assert free_memory() == 1_500_000_000


@pytest.mark.parametrize(
    ("given", "free"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, 4 * 2**30),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "3"}, 3 * 2**30),
        ({"SLURM_MEM_PER_CPU": "1024"}, 2**30),
        ({"SLURM_MEM_PER_NODE": "0"}, 64_000_000 * 1024),  # all of the node
        ({"SLURM_MEM_PER_NODE": "4G", "SLURM_CPUS_ON_NODE": "x"}, 64_000_000 * 1024),
    ],
)
def test_slurm_says_what_a_job_may_use_where_no_group_does(computer, monkeypatch, given, free):
    computer.write()
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert free_memory() == free


def test_a_computer_that_does_not_say_is_not_known(computer: Computer) -> None:
    assert free_memory() == 0
