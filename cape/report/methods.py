"""The paragraph for the methods section of a paper, and what to cite.

Written from the files of the result folder (their parsed JSON), so that it can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

MODELS = {
    "temporal": "Joint temporal independent component analysis",
    "spatial": "Private spatial independent component analysis of a common subspace",
    "template": "Private dual regression on public template maps",
}

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
    simulation = " This is a simulation on synthetic data." if results["simulation"] else ""
    sentences = (
        f"{MODELS[str(settings.get('separation', 'temporal'))]} was run with cape "
        f"{results['version']} (computation {results['computation']}, "
        f"run {str(results['run'])[:16]}) on "
        f"{results['n_subjects']} subjects of {results['n_sites']} sites; no subject's data left "
        f"its site.{simulation}",
        _features(results, settings),
        _steps(results, settings),
        _privacy(results, privacy, settings),
        "Maps are z-scores over all features; the sign of each map makes its skewness positive, "
        "and components are ordered by their share of the retained variance, computed from "
        "released matrices.",
    )
    return " ".join(sentences)


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
        if key in settings and settings.get("separation", "temporal") == "temporal"
    ]
    how = f" ({', '.join(named)})" if named else ""
    end = STATUS.get(str(results["status"]), str(results["reason"]))
    return (
        f"{results['n_components']} components were estimated{how} in {results['rounds']} rounds; "
        f"status {results['status']}: {end} (stability {_short(results['stability'])})."
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
