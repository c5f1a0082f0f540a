"""Small runs of invented people, one of each computation: what is asked, of which files.

Folders of COINSTAC's simulator and the example of NeuroFLAME have their settings from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cape.settings.config import PRODUCT

N_SITES: Final = 3

# What the owner chose in the folders that COINSTAC's simulator runs.  A few subjects a site show
# that the machinery works; their results are noise, so the runs have to accept low quality.
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "capedjica": {
        "epsilon": 8,
        "delta": 1e-5,
        "n_components": 3,
        "mask": "MNI152-10mm",
        "n_basis": 100,
        "n_rounds": 10,
        "min_timepoints": 30,
        "standardize": "demean",
        "accept_low_quality": True,
    },
    "capecca": {
        "epsilon": 4,
        "delta": 1e-5,
        "n_features_x": 4,
        "n_pairs": 2,
        "accept_low_quality": True,
    },
    "capedualreg": {
        "epsilon": 8,
        "delta": 1e-5,
        "feature_space": "matrix",
        "n_features": 12,
        "n_components": 3,
        "min_timepoints": 30,
        "accept_low_quality": True,
    },
    "capegica": {
        "epsilon": 8,
        "delta": 1e-5,
        "n_components": 3,
        "mask": "MNI152-10mm",
        "min_timepoints": 30,
        "accept_low_quality": True,
    },
    "capemean": {
        "epsilon": 4,
        "delta": 1e-5,
        "feature_space": "matrix",
        "n_features": 12,
        "min_timepoints": 30,
        "low": -3,
        "high": 3,
        "accept_low_quality": True,
    },
    "capepca": {"epsilon": 4, "delta": 1e-5, "norm_bound": 6, "accept_low_quality": True},
    "papermean": {
        "epsilon": 4,
        "delta": 1e-5,
        "feature_space": "matrix",
        "n_features": 12,
        "min_timepoints": 30,
        "low": -3,
        "high": 3,
        "accept_low_quality": True,
    },
    "djica": {
        "private": False,
        "feature_space": "matrix",
        "basis": "none",
        "n_components": 3,
        "n_rounds": 10,
        "min_timepoints": 30,
    },
    "dpdispca": {
        "epsilon": 4,
        "delta": 1e-5,
        "norm_bound": 6,
        "n_directions": 2,
        "n_sent": 4,
        "accept_low_quality": True,
    },
    "dpdjica": {
        "feature_space": "matrix",
        "n_features": 12,
        "basis": "none",
        "n_components": 3,
        "n_rounds": 10,
        "min_timepoints": 30,
        "pca_epsilon": 10,
        "round_epsilon": 1,
    },
}
# Their data: a table of people, else one file a subject; and what lies beside it at every site.
_RECORDS: Final = ("capecca", "capepca", "dpdispca")
_SUBJECT_FILE: Final = {
    "capedjica": "_bold.nii.gz",
    "capedualreg": ".npy",
    "capegica": "_bold.nii.gz",
    "capemean": ".npy",
    "papermean": ".npy",
    "djica": ".npy",
    "dpdjica": ".npy",
}
_BESIDE: Final = {"capedualreg": "templates.npy"}
# What their sites allow beyond the shipped policy: these people are invented, and whoever tries the
# folder twice should not be told that they have spent their budget.
_INVENTED: Final = 'ledger_file = "none"\nmax_total_epsilon = 0.0\n'
_UNPROTECTED: Final = "allow_not_private = true\nsimulation_seed = 0\n"
_ALLOWED: Final = {
    "djica": _UNPROTECTED,
    "dpdispca": "allow_local_noise = true\n",
    "dpdjica": _UNPROTECTED,
}


def inputspec_document(
    name: str = PRODUCT, n_sites: int = N_SITES, n_subjects: int = 4
) -> list[dict[str, Any]]:
    """Return inputspec.json: inputs of the demonstration of `n_sites` sites, one object each."""
    # Every site has the owner's inputs, because COINSTAC's simulator passes them on per site.
    common = {
        "computation": name,
        "n_sites": n_sites,
        "site_names": ",".join(f"local{site}" for site in range(n_sites)),
        **SETTINGS[name],
    }
    sites = []
    for site in range(n_sites):
        first = site * n_subjects + 1
        subjects = [f"sub-{i:03d}" for i in range(first, first + n_subjects)]
        own = {"data": ["records.csv"], "policy": ["site-policy.toml"]}
        if name not in _RECORDS:
            own["data"] = [subject + _SUBJECT_FILE[name] for subject in subjects]
        if name in _BESIDE:
            own["data"].append(_BESIDE[name])
        sites.append({n: {"value": v} for n, v in {**own, **common}.items()})
    return sites


def policy_text_of(name: str) -> str:
    """Return the site-policy.toml beside the data of a demonstration."""
    return f"# For invented people only.\n{_INVENTED}{_ALLOWED.get(name, '')}"
