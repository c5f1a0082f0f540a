"""Joint ICA of fMRI data held at several sites, private for every subject.

COINSTAC starts `local.py` and `remote.py` of the project folder; people type the command ``cape``.
Public names are imported on first use, because every round imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape.computations import load, names
    from cape.errors import CapeError, CapeWarning, NoiseWarning, PrivacyWarning, SubjectsWarning
    from cape.lab import datasets as datasets
    from cape.planning.validate import validate
    from cape.python.api import Consortium, Result, budget, rerun
    from cape.python.api import simulate_folder as simulate
    from cape.python.comparison import Comparison, compare
    from cape.python.estimator import JointICA
    from cape.python.groups import GroupResult, compare_groups
    from cape.python.progress_bar import ProgressBar
    from cape.settings.config import VERSION as __version__  # noqa: N811 - the usual name of a version
    from cape.settings.config import Config
    from cape.space.feature_space import FeatureSpace

# Public name -> (module, name there); the name is empty for a module.  Names of the laboratory,
# which may be missing, are not in `__all__`.
_HOMES = {
    "CapeError": ("cape.errors", "CapeError"),
    "CapeWarning": ("cape.errors", "CapeWarning"),
    "Comparison": ("cape.python.comparison", "Comparison"),
    "Config": ("cape.settings.config", "Config"),
    "Consortium": ("cape.python.api", "Consortium"),
    "FeatureSpace": ("cape.space.feature_space", "FeatureSpace"),
    "GroupResult": ("cape.python.groups", "GroupResult"),
    "JointICA": ("cape.python.estimator", "JointICA"),
    "NoiseWarning": ("cape.errors", "NoiseWarning"),
    "PrivacyWarning": ("cape.errors", "PrivacyWarning"),
    "ProgressBar": ("cape.python.progress_bar", "ProgressBar"),
    "Result": ("cape.python.api", "Result"),
    "SubjectsWarning": ("cape.errors", "SubjectsWarning"),
    "__version__": ("cape.settings.config", "VERSION"),
    "compare": ("cape.python.comparison", "compare"),
    "compare_groups": ("cape.python.groups", "compare_groups"),
    "datasets": ("cape.lab.datasets", ""),
    "load": ("cape.computations", "load"),
    "names": ("cape.computations", "names"),
    "rerun": ("cape.python.api", "rerun"),
    "budget": ("cape.python.api", "budget"),
    "simulate": ("cape.python.api", "simulate_folder"),
    "validate": ("cape.planning.validate", "validate"),
}

__all__ = [
    "CapeError",
    "CapeWarning",
    "Comparison",
    "Config",
    "Consortium",
    "FeatureSpace",
    "GroupResult",
    "JointICA",
    "NoiseWarning",
    "PrivacyWarning",
    "ProgressBar",
    "Result",
    "SubjectsWarning",
    "__version__",
    "budget",
    "compare",
    "compare_groups",
    "load",
    "names",
    "rerun",
    "simulate",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'cape' has no attribute '{name}'")
    module, attribute = _HOMES[name]
    if module.startswith("cape.lab."):
        from cape.settings.wings import LABORATORY, require

        try:
            require(LABORATORY, f"cape.{name}")
        except ValueError as err:  # AttributeError would hide the text in `from cape import ...`
            raise ImportError(str(err)) from None
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    from cape.settings.wings import LABORATORY, missing

    return sorted([*__all__, *([] if missing(LABORATORY) else ["datasets"])])
