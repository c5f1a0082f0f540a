"""Three hospitals, no shared scans: from a question about the budget to private maps.

Run it: ``python examples/three_hospitals.py`` (half a minute).  Each block is one cell of a
notebook; nothing here needs more than cape and numpy.
"""

# %% Data that only their hospital sees: here synthetic ones, so that the true maps are known.

import cape

N_COMPONENTS = 5
SIZES = {"north": 40, "south": 50, "west": 38}

study = cape.datasets.make_study(
    "realistic", n_subjects=sum(SIZES.values()), seed=7, n_components=N_COMPONENTS
)
subjects = study.subjects()  # each 250 time points of 900 pixels, a row per time point
sites = {name: [next(subjects) for _ in range(n)] for name, n in SIZES.items()}

# %% Before anything is spent: will it work?
plan = cape.budget(subjects=sum(SIZES.values()), sites=3, epsilon=4.0, components=20)
print(f"20 components at epsilon 4: {plan.advice.answer}; {plan.advice.reason}")
for change in plan.advice.changes:
    print(f"  would help: {change}")

plan = cape.budget(subjects=sum(SIZES.values()), sites=3, epsilon=4.0, components=N_COMPONENTS)
print(f"{N_COMPONENTS} components at epsilon 4: {plan.advice.answer}; {plan.advice.reason}")

# %% The run: real secure sums and exact noise, all sites in this process.
consortium = cape.Consortium(sites, space=study.space, truth=study.maps)
result = consortium.run(
    epsilon=4.0, delta=1e-5, settings={"n_components": N_COMPONENTS, "basis": "dct", "n_basis": 100}
)
print(f"{result.status}: epsilon {result.epsilon:.2f} at delta {result.delta:g}")
print(f"correlation with the true maps {result.map_correlation:.2f}, error q {result.q_ngi:.2f}")

# %% Time courses stay with whoever has the scans.
one = sites["north"][0]
courses = (one - one.mean(axis=0)) @ result.unmixing.T
print(f"time courses of one subject: {courses.shape}")

# %% Another model on the same data needs its own budget: mu^2 adds over runs on the same people.
spatial = consortium.run(
    epsilon=4.0, computation="capegica", settings={"n_components": N_COMPONENTS}
)
print(f"spatial components: correlation with the true maps {spatial.map_correlation:.2f}")
print(f"sparser than smooth noise: {spatial.outcome.spatial.sparseness.fits}")
