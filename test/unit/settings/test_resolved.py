"""What settings mean is said in one place: `resolve`."""

from __future__ import annotations

from cape.computations import load
from cape.settings.config import Config
from cape.settings.resolved import Cleaning, resolve


def test_auto_is_the_recipe_of_spatial_maps_for_images_only():
    def of(*, name: str = "capedjica", **given: object):
        base = {"epsilon": 1.0, "delta": 1e-5, **given}
        return resolve(load(name).config.from_input(base)).reading.cleaning

    brains = Cleaning(detrend="quadratic", standardize="floored", global_signal=True)
    plain = Cleaning(detrend="linear", standardize="variance", global_signal=False)
    assert of(name="capegica") == brains
    assert of(name="capegica", feature_space="atlas", atlas="atlas-a.nii.gz") == brains
    assert of(name="capegica", feature_space="matrix") == of() == plain
    assert (
        resolve(Config(epsilon=1.0, delta=1e-5)).reading.cleaning == plain
    )  # of every other computation too
    chosen = of(name="capegica", detrend="linear", standardize="demean", global_signal=False)
    assert chosen == Cleaning(detrend="linear", standardize="demean", global_signal=False)
    assert of(global_signal=True).global_signal
