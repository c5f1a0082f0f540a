"""The paragraph for the methods section of a paper, and what to cite.

Written from the files of the result folder (their parsed JSON), so that it can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cape.forecast.rule import Separation
from cape.privacy.accounting import display_epsilon

CITATIONS = (
    "Imtiaz H, Mohammadi J, Silva R, Baker B, Plis SM, Sarwate AD, Calhoun VD (2021). A "
    "correlated noise-assisted decentralized differentially private estimation protocol, and its "
    "application to fMRI source separation. IEEE Transactions on Signal Processing 69, 6355-6370. "
    "Preprint, which cape follows: Improved differentially private decentralized source "
    "separation for fMRI data.",
    "Baker BT, Abrol A, Silva RF, Damaraju E, Sarwate AD, Calhoun VD, Plis SM (2019). "
    "Decentralized temporal independent component analysis: leveraging fMRI data in collaborative "
    "settings. NeuroImage 186, 557-569.",
    "Dong J, Roth A, Su WJ (2022). Gaussian differential privacy. Journal of the Royal "
    "Statistical Society B 84(1), 3-37.",
    "Canonne CL, Kamath G, Steinke T (2020). The discrete Gaussian for differential privacy. "
    "Advances in Neural Information Processing Systems 33.",
    "Bonawitz K, Ivanov V, Kreuter B, Marcedone A, McMahan HB, Patel S, Ramage D, Segal A, Seth K "
    "(2017). Practical secure aggregation for privacy-preserving machine learning. ACM CCS, "
    "1175-1191.",
)

ATLASES = {
    "dosenbach_2010": "Dosenbach NUF, et al. (2010). Prediction of individual brain maturity using "
    "fMRI. Science 329, 1358-1361."
}
"""Papers of the networks that components were compared with."""


def citations(results: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to cite for this run."""
    atlas = ATLASES.get(str(results.get("labels", {}).get("template")))
    return CITATIONS if atlas is None else (*CITATIONS, atlas)


STATUS = {
    "released": "the one planned release was made",
    "converged": "the unmixing matrix had settled",
    "max_rounds": "all planned rounds were made, but the unmixing matrix had not clearly settled",
    "not_judged": "all planned rounds were made; nothing in them tells whether sources were found",
    "budget_exhausted": "a release was refused because the privacy budget was used up",
    "diverged": "the solver left its safe range and the run ended with the last good state",
}

ROTATED = {
    "converged": "the rotation of the released subspace had settled",
    "max_rounds": "the rotation of the released subspace had not settled",
}
"""The same for a spatial run, which releases a subspace and no rounds."""

MODELS = {
    "temporal": "Joint temporal independent component analysis",
    "spatial": "Private spatial independent component analysis of a common subspace",
    "template": "Private dual regression on public template maps",
}

ARRANGED = {
    "temporal": "the sign of each map makes its skewness positive, and components are ordered by "
    "their share of the retained variance, computed from released matrices",
    "template": "order, number and sign of the maps are those of the public templates",
}
ARRANGED["spatial"] = ARRANGED["temporal"]

RANK = {
    "gap": "a clear gap in the spectrum confirms the number of components",
    "reduced": "the number of components was reduced to the clear gap in the spectrum",
    "no_gap": "no spectral gap: the number of components may be too large or the budget too small",
    "unguarded": "the spectrum was not checked for a gap",
    "pending": "the spectrum was not checked for a gap",
}


def label_line(results: Mapping[str, object]) -> str:
    """Return the sentence on privacy that stands first in the page and under every picture."""
    if not results["private"]:
        return "NOT PRIVATE: this run gives no privacy guarantee."
    epsilon = display_epsilon(_number(results["epsilon"]))
    return f"Private: epsilon {epsilon} at delta {results['delta']}, one subject, replace-one."


def paragraph(
    results: Mapping[str, object], privacy: Mapping[str, object], settings: Mapping[str, object]
) -> str:
    """Return the methods paragraph, with the numbers of this run."""
    sentences = (
        f"{MODELS[kind_of(settings)]} was run with cape "
        f"{results['version']} (computation {results['computation']}, "
        f"run {str(results['run'])[:16]}) on "
        f"{results['n_subjects']} subjects of {results['n_sites']} sites; {where(results)}."
        f"{_left(results)}",
        _features(results, settings),
        _steps(results, settings),
        _privacy(results, privacy, settings),
        f"Maps are z-scores over all features; {ARRANGED[kind_of(settings)]}.",
    )
    return " ".join(sentences)


def kind_of(settings: Mapping[str, object]) -> Separation:
    """Return the separation of a run from its settings."""
    kind = settings.get("separation", "temporal")
    return "spatial" if kind == "spatial" else "template" if kind == "template" else "temporal"


def ended(status: str, kind: Separation) -> str | None:
    """Return in words how a run of this separation ended; None for a status without words."""
    return ROTATED.get(status, STATUS.get(status)) if kind == "spatial" else STATUS.get(status)


def where(results: Mapping[str, Any]) -> str:
    """Say where the data were; only a planted truth beside the sites tells that nobody's are."""
    if not results["simulation"]:
        return "no subject's data left its site"
    synthetic = ", on synthetic data" if results.get("synthetic") else ""
    return f"this is a simulation of all sites on one computer{synthetic}"


def departed(results: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sites that dropped out before the last sum."""
    return tuple(site for site in results["sites"] if site not in results["survivors"])


def _left(results: Mapping[str, Any]) -> str:
    """Name the sites that dropped out, and say who is in the last sum; empty without any."""
    gone = departed(results)
    if not gone:
        return ""
    rest = {site: n for site, n in results["sites"].items() if site not in gone}
    return (
        f" {len(gone)} of the sites dropped out during the run ({', '.join(gone)}); the last sum "
        f"holds {sum(rest.values())} subjects of {len(rest)} sites."
    )


def document(
    results: Mapping[str, object], privacy: Mapping[str, object], settings: Mapping[str, object]
) -> str:
    """Return the content of methods.md."""
    cited = "\n".join(f"- {citation}" for citation in citations(results))
    head = f"# Methods\n\n{label_line(results)}\n\n"
    return f"{head}{paragraph(results, privacy, settings)}\n\n## References\n\n{cited}\n"


def _features(results: Mapping[str, object], settings: Mapping[str, object]) -> str:
    """Say what the features are and how they were reduced, without data."""
    n, d = results["n_features"], results["n_basis"]
    kind = {
        "mask": f"{n} voxels of the mask {settings.get('mask')}",
        "atlas": f"{n} parcels of the atlas {settings.get('atlas') or 'given as a label image'}",
    }.get(str(results["feature_space"]), f"{n} columns of the data matrix")
    reduced = "" if n == d else f", projected on a public basis of {d} dimensions"
    return f"The features were {kind}{reduced}."


def _steps(results: Mapping[str, object], settings: Mapping[str, object]) -> str:
    """Say which algorithms ran, for how long, and how it ended."""
    named = [
        f"{word} '{settings[key]}'"
        for key, word in (("pca", "subspace"), ("whitening", "whitening"), ("solver", "solver"))
        if key in settings and kind_of(settings) == "temporal"
    ]
    how = f" ({', '.join(named)})" if named else ""
    end = ended(str(results["status"]), kind_of(settings)) or str(results["reason"]).rstrip(".")
    said = f"{results['n_components']} components were estimated{how}"
    if kind_of(settings) != "temporal":  # one release: there are no rounds to be stable over
        return f"{said} from one release; status {results['status']}: {end}."
    return (
        f"{said} in {results['rounds']} rounds; status {results['status']}: {end} "
        f"(stability {_short(results['stability'] or None)})."
    )


def _privacy(
    results: Mapping[str, object], privacy: Mapping[str, object], settings: Mapping[str, object]
) -> str:
    """Say what is guaranteed against whom, or that nothing is."""
    if not results["private"]:
        return "The run was not private: no differential privacy guarantee is claimed."
    epsilon = display_epsilon(_number(results["epsilon"]))
    noise = (
        "each site added the whole noise by itself"
        if settings.get("noise") == "local"
        else "each site added a share of the noise and zero-sum masks"
    )
    return (
        f"The released results satisfy ({epsilon}, {results['delta']})-differential privacy for "
        f"replacing all data of one subject (Gaussian differential privacy with mu = "
        f"{_short(privacy['mu'])}), against the aggregator together with at most "
        f"{privacy['assumed_colluders']} of {privacy['n_sites']} sites. Every statistic was "
        f"clipped per subject and summed as integers; {noise} (exact discrete Gaussian)."
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _short(value: object) -> str:
    """Return a number with four significant digits, or "not assessed"."""
    number = _number(value)
    return "not assessed" if number is None else f"{number:.4g}"
