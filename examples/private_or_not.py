"""With and without privacy.

What does noise cost? The same subjects with no noise, with a large budget, and with a small one.
"""

# %%
# Thirty synthetic subjects at three sites, three true maps.
import cape

study = cape.datasets.make_study("realistic", n_subjects=30, n_components=3, seed=11)
common = {"n_components": 3, "basis": "dct", "n_basis": 40}

# %%
# Every row is a whole run of the protocol: keys, masks, exact noise, ledger.
table = cape.compare(
    study.sites(3),
    {
        "no noise": {**common, "private": False},
        "epsilon 40": {**common, "epsilon": 40.0},
        "epsilon 4": {**common, "epsilon": 4.0},  # refused: it would mostly show noise
    },
    space=study.space,
    truth=study.maps,
)
print(table)

# %%
# Below the size that `cape budget` asks for, the maps are noise; a real run would be refused.
plan = cape.budget(
    subjects=30, sites=3, epsilon=4.0, components=3, settings={"computation": "capedjica"}
)
print(plan.advice.answer, "-", plan.advice.reason)

# %%
# The maps without noise:
figure = table["no noise"].result.plot()
