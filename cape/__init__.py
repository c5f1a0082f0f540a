"""Joint ICA of fMRI data held at several sites, private for every subject.

`local.py` and `remote.py` of the project folder are what COINSTAC starts; the command ``cape`` is
what people type.  Nothing is imported here before it is asked for, because a round imports this
package too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape import datasets
    from cape.api import Consortium, Result, budget
    from cape.api import simulate_folder as simulate
    from cape.comparison import Comparison, compare
    from cape.computations import load, names
    from cape.config import VERSION as __version__  # noqa: N811 - the usual name of a version
    from cape.config import Config
    from cape.errors import CapeError, CapeWarning, NoiseWarning, PrivacyWarning, SubjectsWarning
    from cape.estimator import JointICA
    from cape.feature_space import FeatureSpace
    from cape.planning.validate import validate
    from cape.progress_bar import ProgressBar
    from cape.simulation.simulate import resume

# Public name -> (module, name there); a module itself has an empty second word.
_HOMES = {
    "CapeError": ("cape.errors", "CapeError"),
    "CapeWarning": ("cape.errors", "CapeWarning"),
    "Comparison": ("cape.comparison", "Comparison"),
    "Config": ("cape.config", "Config"),
    "Consortium": ("cape.api", "Consortium"),
    "FeatureSpace": ("cape.feature_space", "FeatureSpace"),
    "JointICA": ("cape.estimator", "JointICA"),
    "NoiseWarning": ("cape.errors", "NoiseWarning"),
    "PrivacyWarning": ("cape.errors", "PrivacyWarning"),
    "ProgressBar": ("cape.progress_bar", "ProgressBar"),
    "Result": ("cape.api", "Result"),
    "SubjectsWarning": ("cape.errors", "SubjectsWarning"),
    "__version__": ("cape.config", "VERSION"),
    "compare": ("cape.comparison", "compare"),
    "datasets": ("cape.datasets", ""),
    "load": ("cape.computations", "load"),
    "names": ("cape.computations", "names"),
    "resume": ("cape.simulation.simulate", "resume"),
    "budget": ("cape.api", "budget"),
    "simulate": ("cape.api", "simulate_folder"),
    "validate": ("cape.planning.validate", "validate"),
}

__all__ = [
    "CapeError",
    "CapeWarning",
    "Comparison",
    "Config",
    "Consortium",
    "FeatureSpace",
    "JointICA",
    "NoiseWarning",
    "PrivacyWarning",
    "ProgressBar",
    "Result",
    "SubjectsWarning",
    "__version__",
    "budget",
    "compare",
    "datasets",
    "load",
    "names",
    "resume",
    "simulate",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'cape' has no attribute '{name}'")
    module, attribute = _HOMES[name]
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    return sorted(__all__)
