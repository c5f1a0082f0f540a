"""The same environment for linear algebra in every program of this project.

OpenBLAS chooses its kernels by the processor and the order of its sums by the number of threads.
Variables of the shell change both, and containers do not inherit them.  Noise is a function of
exact sums (docs/privacy.md), so the last bit of a product decides which noise is drawn.
"""

import os
import sys
from collections.abc import MutableMapping
from typing import Final

THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
KERNEL: Final = "OPENBLAS_CORETYPE"
# Other variables that change the order of sums or the code path of functions
PREFIXES: Final = ("OPENBLAS_", "GOTO_", "NPY_DISABLE_CPU_", "NPY_ENABLE_CPU_")
# Every x86-64 processor of the last ten years can run these kernels.
COMMON_KERNEL: Final = "Haswell"
NEEDED_FEATURES: Final = frozenset({"avx2", "fma"})
CPU_INFO: Final = "/proc/cpuinfo"


def pin(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Choose one thread and the common kernels; return False if numpy is already imported.

    Only for programs of this project, not for Python processes of users.
    """
    if "numpy" in sys.modules:
        return False
    for name in [name for name in environment if name.startswith(PREFIXES)]:
        del environment[name]
    for name in THREADS:
        environment[name] = "1"
    # With an unsupported kernel the process would crash at its first product.
    if NEEDED_FEATURES <= _cpu_features():
        environment[KERNEL] = COMMON_KERNEL
    return True


def _cpu_features() -> frozenset[str]:
    try:
        with open(CPU_INFO, encoding="ascii", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(flags.partition(":")[2].split())
