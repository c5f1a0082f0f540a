"""Every program of this project takes the same kernels and one thread, whatever the shell says.

A shell that exported `OPENBLAS_CORETYPE` gave its processes other sums than a container, and with
them other noise: 8 tests of the real engine failed on one computer and on no other.
Belongs to `cape/kernels.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cape import kernels
from cape.simulation.transports import PARTY_PROGRAM, TOP

ROOT = Path(__file__).parents[2]
HOSTILE = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_L2_SIZE": "512",
    "OPENBLAS_NUM_THREADS": "2",
    "OMP_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
    "GOTO_NUM_THREADS": "2",
    "NPY_DISABLE_CPU_FEATURES": "AVX2",
}
# Its last call ends the process.
START = PARTY_PROGRAM.replace("cape.engines.coinstac.computation.program(role)", "")
PROGRAMS = {
    "cape": "from cape.cli import main; main(['--version'])",
    "python -m cape": "import runpy; runpy.run_module('cape', run_name='__main__')",
    "local.py": "import runpy; runpy.run_path('local.py', run_name='program')",
    "remote.py": "import runpy; runpy.run_path('remote.py', run_name='program')",
    "a process of a simulation": f"sys.argv = ['', {TOP!r}, 'local']; exec({START!r})",
    "the container's service": "import cape.engines.coinstac.service",
    "a test": "import conftest",
}
SAY = """
import os, sys
try:
    {program}
except SystemExit:
    pass
import numpy, threadpoolctl
[blas] = [one for one in threadpoolctl.threadpool_info() if "numpy" in one["filepath"]]
others = sorted(name for name in os.environ if name.startswith(("GOTO_", "NPY_", "OPENBLAS_L")))
print(blas["architecture"], blas["num_threads"], *others)
"""


def said(code: str, shell: dict[str, str]) -> list[str]:
    """Return the words of the last line that a program in another shell prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **shell, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'test'}"},
        cwd=ROOT,
        input="",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


needs_common_kernels = pytest.mark.skipif(
    not kernels._cpu_features() >= kernels.NEEDED_FEATURES, reason="an older processor"
)


@needs_common_kernels
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_takes_the_common_kernels_and_one_thread_whatever_the_shell_says(program):
    assert said(SAY.format(program=PROGRAMS[program]), HOSTILE) == ["Haswell", "1"]


@needs_common_kernels
def test_somebody_elses_python_that_has_numpy_keeps_its_kernels_and_threads():
    code = SAY.format(program="import numpy; from cape.kernels import pin; assert not pin()")
    assert said(code, HOSTILE)[:2] == ["Nehalem", "2"]


@pytest.mark.parametrize("flags", ["flags\t\t: fpu sse2 avx", "Features\t: fp asimd", None])
def test_a_processor_without_the_common_kernels_keeps_its_own_whatever_the_shell_says(
    tmp_path, flags
):
    # A kernel that a processor lacks ends the process at its first product.
    about = tmp_path / "cpuinfo"
    if flags is not None:
        about.write_text(f"processor\t: 0\n{flags}\n\nprocessor\t: 1\n")
    code = (
        f"import os; from cape import kernels; kernels.CPU_INFO = {str(about)!r}; "
        "print(kernels.pin(), os.environ.get('OPENBLAS_CORETYPE'), os.environ['OMP_NUM_THREADS'])"
    )
    assert said(code, HOSTILE) == ["True", "None", "1"]
