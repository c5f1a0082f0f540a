"""Every claim of docs/privacy.md has a script that shows it, and that fails when it is false."""

import re
import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cape.algorithms import looks
from cape.papers import accountants, correlated
from cape.privacy import accounting
from cape.privacy import mechanisms as release_integers
from cape.privacy.cost import Cost
from cape.secagg import graph, keys
from support import closed_forms

DOCS = Path(__file__).parents[2] / "docs"
CHECKS = sorted((DOCS / "checks").glob("*.py"))
NAMES = [path.stem for path in CHECKS]


def run(name: str, **changed: object) -> int:
    """Return the exit code of a script, some of whose own functions are others."""
    main = runpy.run_path(str(DOCS / "checks" / f"{name}.py"), run_name="check")["main"]
    main.__globals__.update(changed)
    return main()


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_holds(name, capsys):
    assert run(name) == 0
    first, *figures = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("Claim: ")
    assert any(re.search(r"\d", line) for line in figures)


def test_the_page_names_every_script_and_no_other():
    named = re.findall(r"\(checks/(\w+)\.py\)", (DOCS / "privacy.md").read_text())
    assert sorted(set(named)) == NAMES


class CoarseNormal:
    """A generator whose numbers have no low bits."""

    def __init__(self, seed: int) -> None:
        self._rng = REAL_RNG(seed)

    def standard_normal(self, size: int) -> np.ndarray:
        return np.rint(self._rng.standard_normal(size) * 2.0**20) / 2.0**20


REAL_RNG, REAL_INV = np.random.default_rng, np.linalg.inv
REAL_DELTA, REAL_FACTOR = accounting.gdp_delta, correlated.view_factor
REAL_STREAM, REAL_MOVED = keys._apply_stream, looks.moved


def paper_factor(**sites: int) -> Fraction:
    return REAL_FACTOR(**sites, ratio=sites["n_sites"])


WRONG = {  # script: module (None: itself), name, what takes its place
    "asymmetric_scheme": (None, "least_request", lambda *_: 0.0),
    "classic_calibration": (
        None, "classic_noise", lambda epsilon: 1 / accounting.gdp_mu(epsilon=epsilon, delta=1e-5),
    ),
    "comparison_bounds": (looks, "moved", lambda *asked: 0.95 * REAL_MOVED(*asked)),
    "discrete_noise": (
        release_integers, "lattice_slack",
        lambda _: release_integers.LatticeSlack(epsilon=0.0, delta=0.0),
    ),
    "drop_outs": (None, "dropout_factor", lambda *_: 1.0),
    "exact_accountant": (accounting, "gdp_delta", lambda **x: 1.001 * REAL_DELTA(**x)),
    "float_noise": (np.random, "default_rng", CoarseNormal),
    "masked_replies": (keys, "_apply_stream", lambda _, *rest: REAL_STREAM(np.add, *rest)),
    "moments_sign": (
        accountants, "moments_epsilon", accountants.moments_epsilon_printed,
    ),
    "pooled_cape_conventional": (None, "view_factor", lambda **_: Fraction(1, 2)),
    "rdp_units": (
        None, "printed_variance",
        lambda learning_rate, pooled_std, sensitivity: (pooled_std / sensitivity) ** 2,
    ),
    "secagg_graph": (graph, "second_eigenvalue", lambda n_sites, k: 0.0),
    "sensitivity": (release_integers, "integer_sensitivity", lambda shape, clip, size: clip),
    "symmetric_noise": (None, "nonsymmetric_factor", lambda: 28 / 15),
    "theorem_1_is_false": (correlated, "printed_factor", paper_factor),
    "unequal_sizes": (None, "imbalance", lambda _: 1.0),
    "vacuous_composition": (
        None, "ACCOUNTANTS", dict.fromkeys(accountants.ACCOUNTANTS, accountants.ACCOUNTANTS["gdp"]),
    ),
    "view_of_cape": (
        correlated, "view_factor",
        lambda n_sites, colluders, ratio: closed_forms.printed_view_factor(
            n_sites=n_sites, colluders=colluders
        ),
    ),
    "who_sees_what": (Cost, "if_unknown", lambda cost, n_unknown, noise_shares: cost),
    "wishart_noise": (np.linalg, "inv", lambda matrix: 2.0 * REAL_INV(matrix)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_false_claim_is_seen(name, monkeypatch):
    module, attribute, wrong = WRONG[name]
    if module is not None:
        monkeypatch.setattr(module, attribute, wrong)
    assert run(name, **({attribute: wrong} if module is None else {})) == 1
