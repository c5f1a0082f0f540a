"""Means and histograms with exact error bars.

The ranges are public constants, never taken from data; the noise is known, so every number comes
with its error.
"""

# %%
import numpy as np

import cape

rng = np.random.default_rng(1)
# Two regions and 120 time points per person; what is asked of a person is the mean over time.
people = {
    site: [rng.normal([[1.0], [2.0]], 0.5, (2, 120)) for _ in range(n)]
    for site, n in (("a", 150), ("b", 250), ("c", 90))
}

# %%
settings = {"low": -3.0, "high": 5.0, "n_bins": 8}
result = cape.Consortium(people).run(epsilon=1.0, computation="capemean", settings=settings)
for table in result.outcome.tables:
    print(table.title)
    print("  ", table.header)
    for row in table.rows:
        print("  ", row)

# %%
# The true means, which nobody would know outside this page:
print(np.mean([person for of_site in people.values() for person in of_site], axis=(0, 2)))
