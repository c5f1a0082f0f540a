"""One run, several accountants.

The total of a run depends on how releases are added up. `cape` adds exactly; the rules that papers
use are worse, and one printed in them is wrong.
"""

# %%

import cape

study = cape.datasets.make_study("paper", n_subjects=30, n_components=3, seed=2)
settings = {"n_components": 3, "basis": "dct", "n_basis": 30, "n_rounds": 10}
result = cape.Consortium(study.sites(3), space=study.space).run(epsilon=8.0, settings=settings)
print(f"exact: epsilon {result.epsilon:.3f} at delta {result.delta:g}")

# %%
# The sum of all releases, and what other rules say of the same ones; `holds` is whether a figure is
# at least the exact one, so that a person who relies on it is not misled.
from cape.papers.accountants import Releases, compare_accountants

events = result.outcome.ledger.events
print(len(events), "releases")
for row in compare_accountants(Releases.of(event.cost for event in events), delta=1e-5):
    epsilon = "-" if row.total.epsilon is None else f"{row.total.epsilon:.3g}"
    holds = {True: "holds", False: "too small", None: ""}[row.holds]
    print(f"{row.accountant.title:60s} {epsilon:>9s}  {holds}")
