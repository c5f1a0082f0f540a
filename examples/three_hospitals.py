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

consortium = cape.Consortium(sites, space=study.space, truth=study.maps)
pixels = {"basis": "dct", "n_basis": 100}

# %% Before anything is spent: will it work?
for n in (20, N_COMPONENTS):
    plan = consortium.budget(epsilon=4.0, components=n, settings=pixels)
    print(f"{n} components at epsilon 4: {plan.advice.answer}; {plan.advice.reason}")
    for change in plan.advice.changes:
        print(f"  would help: {change}")

# %% The run: real secure sums and exact noise, all sites in this process.
result = consortium.run(epsilon=4.0, settings={"n_components": N_COMPONENTS, **pixels})
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
