"""Means and histograms with exact error bars.

The ranges are public constants, never taken from data; the noise is known, so every number comes
with its error.
"""

# %%
import numpy as np
import pandas as pd

import cape

rng = np.random.default_rng(1)
# 120 time points of two regions per person; what is asked of a person is the mean over time.
people = {
    site: [rng.normal([1.0, 2.0], 0.5, (120, 2)) for _ in range(n)]
    for site, n in (("a", 150), ("b", 250), ("c", 90))
}

# %%
settings = {"low": -3.0, "high": 5.0, "n_bins": 8}
result = cape.Consortium(people).run(epsilon=1.0, computation="capemean", settings=settings)
means, histogram = (pd.DataFrame(t.rows, columns=t.header) for t in result.outcome.tables)
print(means.round(3).to_string(index=False))

# %%
# Fractions of people between two values, of the first region; below zero is noise, and is shown:
print(histogram[histogram["column"] == 1].round(3).to_string(index=False))

# %%
# The true means, which nobody would know outside this page; one interval in 20 misses its own:
print(np.mean([person for of_site in people.values() for person in of_site], axis=(0, 1)))
