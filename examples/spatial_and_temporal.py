"""Temporal and spatial ICA of the same people.

The first, capedjica, looks for networks with independent time courses, the second, capegica, for
maps that are independent over the brain; it costs one release only.
"""

# %%
import cape

study = cape.datasets.make_study("realistic", n_subjects=40, n_components=3, seed=21)
common = {"n_components": 3, "basis": "dct", "n_basis": 40, "epsilon": 20.0}
table = cape.compare(
    study.sites(3),
    {"temporal": common, "spatial": {**common, "computation": "capegica"}},
    space=study.space,
    truth=study.maps,
)
print(table)

# %%
# What each run released: the spatial one is done after its first sum.
for run in table.runs:
    phases = [record.phase for record in run.result.trace]
    print(run.name, {phase: phases.count(phase) for phase in dict.fromkeys(phases)})

# %%
figure = table["spatial"].result.plot()
