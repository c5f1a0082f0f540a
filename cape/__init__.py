"""Joint ICA of fMRI data held at several sites, private for every subject.

COINSTAC starts `local.py` and `remote.py` of the project folder; people type the command ``cape``.
Public names are imported on first use, because every round imports this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` its own name: exported, to a type checker
    from cape.computations import load as load
    from cape.computations import names as names
    from cape.errors import CapeError as CapeError
    from cape.errors import CapeWarning as CapeWarning
    from cape.errors import NoiseWarning as NoiseWarning
    from cape.errors import PrivacyWarning as PrivacyWarning
    from cape.errors import SubjectsWarning as SubjectsWarning
    from cape.lab import datasets as datasets
    from cape.planning.validate import validate as validate
    from cape.python.api import Consortium as Consortium
    from cape.python.api import Result as Result
    from cape.python.api import budget as budget
    from cape.python.api import rerun as rerun
    from cape.python.api import simulate as simulate
    from cape.python.comparison import Comparison as Comparison
    from cape.python.comparison import compare as compare
    from cape.python.estimator import JointICA as JointICA
    from cape.python.groups import GroupResult as GroupResult
    from cape.python.groups import compare_groups as compare_groups
    from cape.python.notebook import ProgressBar as ProgressBar
    from cape.settings.config import Config as Config
    from cape.space.feature_space import FeatureSpace as FeatureSpace

    __version__: str

# Module -> its public names.
_PUBLIC = {
    "cape.computations": "load names",
    "cape.errors": "CapeError CapeWarning NoiseWarning PrivacyWarning SubjectsWarning",
    "cape.planning.validate": "validate",
    "cape.python.api": "Consortium Result budget rerun simulate",
    "cape.python.comparison": "Comparison compare",
    "cape.python.estimator": "JointICA",
    "cape.python.groups": "GroupResult compare_groups",
    "cape.python.notebook": "ProgressBar",
    "cape.settings.config": "Config __version__",
    "cape.space.feature_space": "FeatureSpace",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOMES)  # not `datasets` of the laboratory, which may be missing


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "datasets":
        from cape.settings.wings import LABORATORY, require

        try:
            require(LABORATORY, "cape.datasets")
        except ValueError as err:  # AttributeError would hide the text in `from cape import ...`
            raise ImportError(str(err)) from None
        return importlib.import_module("cape.lab.datasets")
    if name not in _HOMES:
        raise AttributeError(f"module 'cape' has no attribute '{name}'")
    there = "VERSION" if name == "__version__" else name
    return getattr(importlib.import_module(_HOMES[name]), there)


def __dir__() -> list[str]:
    from cape.settings.wings import LABORATORY, missing

    return sorted([*__all__, *([] if missing(LABORATORY) else ["datasets"])])
