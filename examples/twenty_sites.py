"""A federation of twenty sites.

Small sites do not pay for being many: the noises of sites are correlated, so that what is left in
the sum is what one pooled study would need.
"""

# %%
import cape

study = cape.datasets.make_study("realistic", n_subjects=60, n_components=3, seed=8)
common = {"n_components": 3, "basis": "dct", "n_basis": 40, "n_rounds": 10, "epsilon": 20.0}

# %%
# The same people at 4 and at 20 sites, and at 20 sites that each add all the noise by themselves.
for n_sites, more in ((4, {}), (20, {}), (20, {"noise": "local"})):
    result = cape.Consortium(study.sites(n_sites), space=study.space, truth=study.maps).run(
        settings={**common, **more}
    )
    what = "local noise" if more else "correlated noise"
    print(f"{n_sites:2d} sites, {what}: mean |r| with the true maps {result.map_correlation:.2f}")

# %%
# What one site sends per run does not grow with the number of sites.
for n_sites in (4, 20):
    plan = cape.budget(
        subjects=1024,
        sites=n_sites,
        epsilon=1.0,
        components=10,
        settings={"computation": "capedjica"},
    )
    print(n_sites, "sites:", round(plan.bytes_per_site / 1e6, 1), "MB per site")
