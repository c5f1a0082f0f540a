"""A computation of one's own.

A computation is a table of phases; what protects people (masks, noise, ledger, checks) is
shared. The smallest one that ships is `capemean`; this page reads its table.
"""

# %%
# The phases, what a site sends, and what comes back.
import cape

computation = cape.load("capemean")
config = computation.config.from_input({"epsilon": 1.0, "delta": 1e-5, "low": -3.0, "high": 3.0})
for name in computation.bind(config).phases:
    print(name)

# %%
# What is asked of one person is bounded by public constants: mathematics, and nothing else.
from cape.algorithms.marginals import ColumnMean

print(ColumnMean.__doc__.strip().splitlines()[0])

# %%
# It runs like any other. 120 time points of ten regions per person, three sites.
import numpy as np

rng = np.random.default_rng(3)
sites = {
    name: [rng.normal(0.5, 1.0, (120, 10)) for _ in range(40)]
    for name in ("north", "south", "west")
}
result = cape.Consortium(sites).run(
    epsilon=2.0, computation="capemean", settings={"low": -3.0, "high": 3.0}
)
print(result)
print(result.to_dataframe().head())
