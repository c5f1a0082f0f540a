"""Makes the modules of this folder, and the consortium of the protocol tests, importable."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def _load(name: str, path: Path) -> ModuleType:
    """Import a file once for all test modules; test/ is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_load("cape_test_consortium", HERE.parent / "protocol" / "consortium.py")
scanner = _load("cape_test_scanner", HERE / "scanner.py")
carriers = _load("cape_test_carriers", HERE / "carriers.py")
engines = _load("cape_test_engines", HERE / "engines.py")
recorder = _load("cape_test_recorder", HERE / "recorder.py")
