"""Canonical correlations of two modalities.

Brain networks on one side, test scores on the other, one row per person at every site.
"""

# %%
# Two views with planted canonical correlations of .8 and .5.
import cape

views = cape.datasets.two_views(5, n_records=1200, n_x=6, n_y=4, correlations=(0.8, 0.5))
rows = iter(views.records)
sites = {name: [next(rows)[None, :] for _ in range(n)] for name, n in (("a", 500), ("b", 700))}

# %%
# One secure sum gives means, standard deviations, correlations, weights and loadings.
result = cape.Consortium(sites).run(
    epsilon=8.0, computation="capecca", settings={"n_features_x": 6, "n_pairs": 2}
)
table = {t.name: t for t in result.outcome.tables}["correlations"]
print(table.header)
for row in table.rows:
    print(row)
