"""Five questions, each stated as a user states it: without noise the answer is least squares.

`fitted` is that of pooled tables with a column a site, by QR: no code of cape.  Where a term is in
products it is adjusted for what does not contain it (type II).
Belongs to `cape/python/groups.py`.
"""

import math

import numpy as np
import pytest

import cape

# A tenth of the values is missing, which each site is told.
pytestmark = pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning")

VARIABLES = {"dx": ["control", "SZ", "BD"], "age": (18, 90), "sex": ["F", "M"]}
VOLUMES = {"hippocampus": (2500, 5500), "log(wmh)": (0.1, 100)}
REGIONS = ("Insula L", "Insula R", "Calcarine L", "Calcarine R")
EDGES = {f"{a} - {b}": (-1, 1) for i, a in enumerate(REGIONS) for b in REGIONS[i + 1 :]}


def tables(levels=VARIABLES["dx"], sessions: bool = False) -> dict[str, dict]:
    """Three sites of unlike people; a tenth of the values is missing."""
    rng, made = np.random.default_rng(11), {}
    for s, n in enumerate((90, 70, 50)):
        dx = rng.integers(len(levels), size=n)
        age, sex = rng.uniform(20, 80, n).round(1), rng.integers(2, size=n)
        table = {"participant_id": [f"p{s}-{i}" for i in range(n)], "dx": np.array(levels)[dx]}
        table |= {"age": age, "sex": np.array(["F", "M"])[sex]}
        y = rng.standard_normal((n, 2 + len(EDGES))) + 0.3 * s + np.outer(0.4 * dx, range(8))
        y += np.outer((age - 50) / 30 * (1 - 0.5 * dx), np.ones(8)) + 0.2 * sex[:, None]
        names = ("hippocampus", "wmh", *EDGES)
        for name, values in zip(names, y.T, strict=True):
            values[rng.random(n) < 0.1] = np.nan
            wide = {"hippocampus": 4000 + 400 * values, "wmh": np.exp(values)}
            table[name] = wide.get(name, 0.2 * values)
        if sessions:
            later = {**table, "hippocampus": table["hippocampus"] + 50 * rng.standard_normal(n)}
            both = {name: np.concatenate([table[name], later[name]]) for name in table}
            table = {**both, "session_id": ["ses-1"] * n + ["ses-2"] * n}
        made[f"site{s + 1}"] = table
    return made


def fitted(y: np.ndarray, X: list[np.ndarray], site: np.ndarray, q: int = 1) -> np.ndarray:
    """Return estimate and standard error of the first `q` columns, then sd of the residuals."""
    columns = [*X, *(site == name for name in np.unique(site))]
    there = np.isfinite(y)
    A = np.column_stack(columns).astype(float)[there]
    Q, R = np.linalg.qr(A)
    b = np.linalg.solve(R, Q.T @ y[there])
    sd = math.sqrt(((y[there] - A @ b) ** 2).sum() / (there.sum() - A.shape[1]))
    inverse = np.linalg.inv(R)
    return np.array([*b[:q], *(sd * np.linalg.norm(inverse[:q], axis=1)), sd])


def pooled(sites: dict[str, dict]) -> dict[str, np.ndarray]:
    whole = {name: np.concatenate([one[name] for one in sites.values()]) for name in sites["site1"]}
    return {**whole, "site": np.repeat(list(sites), [len(one["age"]) for one in sites.values()])}


def ask(sites, formula: str, **how):
    asked = {"outcomes": VOLUMES, "variables": VARIABLES, "public": "dx", **how}
    return cape.compare_groups(sites, formula, private=False, **asked).effects


def same(row, expected: np.ndarray) -> None:
    """A person's values are floats of 24 bits: an estimate may differ by 1e-6 of its error."""
    found = [row.estimate, row.se, row.sd]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * row.se)


@pytest.mark.parametrize("name", ["hippocampus", "wmh"])
def test_three_groups(name: str) -> None:
    sites, whole = tables(), pooled(tables())
    rows = ask(sites, "dx + age + sex")
    y = np.log(whole[name]) if name == "wmh" else whole[name]
    covariates = [whole["age"], whole["sex"] == "M"]
    for one, other in (("SZ", "control"), ("BD", "control"), ("BD", "SZ")):
        dummies = [whole["dx"] == level for level in VARIABLES["dx"] if level != other]
        first = [whole["dx"] == one, *(d for d in dummies if not (d == (whole["dx"] == one)).all())]
        (row,) = rows[(rows.contrast == f"{one} - {other}") & (rows.outcome == name)].itertuples()
        same(row, fitted(y, [*first, *covariates], whole["site"]))


def test_age_beside_diagnosis() -> None:
    sites, whole = tables(), pooled(tables())
    rows = ask(sites, "dx + age + sex", ask="dx, age")
    dummies = [whole["dx"] == level for level in ("SZ", "BD")]
    row = rows[(rows.term == "age") & (rows.outcome == "hippocampus")].iloc[0]
    same(row, fitted(whole["hippocampus"], [whole["age"], *dummies, whole["sex"] == "M"],
                     whole["site"]))  # fmt: skip


def test_slopes_by_group() -> None:
    two = {**VARIABLES, "dx": ["control", "SZ"]}
    sites, whole = tables(two["dx"]), pooled(tables(two["dx"]))
    rows = ask(sites, "dx * age + sex", ask="dx, age, dx:age", variables=two)
    rows = rows[rows.outcome == "hippocampus"].set_index("term")
    y, patient, sex = whole["hippocampus"], whole["dx"] == "SZ", whole["sex"] == "M"
    whole_model = [patient * whole["age"], patient, whole["age"], sex]
    same(rows.loc["dx:age"], fitted(y, whole_model, whole["site"]))
    # Main effects are those of the model without the product.
    same(rows.loc["dx"], fitted(y, [patient, whole["age"], sex], whole["site"]))
    same(rows.loc["age"], fitted(y, [whole["age"], patient, sex], whole["site"]))


def test_change_after_treatment() -> None:
    arms = {"dx": ["placebo", "drug"], "age": (18, 90)}
    sites = tables(arms["dx"], sessions=True)
    rows = ask(sites, "dx + age", variables=arms, outcomes={"hippocampus": (2500, 5500)},
               change="ses-1, ses-2")  # fmt: skip
    whole = pooled(sites)
    first, later = whole["session_id"] == "ses-1", whole["session_id"] == "ses-2"
    change = whole["hippocampus"][later] - whole["hippocampus"][first]
    X = [(whole["dx"] == "drug")[first], whole["age"][first]]
    same(rows.iloc[0], fitted(change, X, whole["site"][first]))


def test_edges_of_an_atlas() -> None:
    two = {**VARIABLES, "dx": ["control", "SZ"]}
    sites, whole = tables(two["dx"]), pooled(tables(two["dx"]))
    rows = ask(sites, "dx + age", variables=two, outcomes=EDGES)
    assert list(rows.region_a.unique()) == list(REGIONS[:-1])
    for row in rows.itertuples():
        X = [whole["dx"] == "SZ", whole["age"]]
        same(row, fitted(whole[row.outcome], X, whole["site"]))
