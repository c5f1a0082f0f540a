"""The owner's form in COINSTAC's application as a settings.toml for members, and back.

A form is ``{"<input>": {"value": ..}, ..}``: an inputspec.json, a list with one such object per
site, or the ``inputMap`` of a pipeline.
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any, Final

from cape.computations import configured
from cape.engines.coinstac.site import EXPERT, SITE_INPUTS
from cape.errors import ConfigError, MessageError, own_words
from cape.protocol import wire
from cape.settings.config import VERSION, Config
from cape.settings.documents import not_default, toml_text
from cape.settings.option import Value, choices, out_of_range

# Settings without effect in COINSTAC, which passes files without folders and ends a run when a site
# is lost.
NOT_IN_COINSTAC: Final = ("bids_filter", "bids_exclude", "aggregation", "min_survivors")
# Settings for images, which computations of matrices never read.
OF_IMAGES: Final = ("space", "smoothing_fwhm", "resample")
# Settings of time series, and one of forecasts of maps: few tables need them.
OF_SERIES: Final = ("tr", "min_timepoints", "high_pass", "confound_strategy", "accept_low_quality")
# Settings of files of one person, which computations of records seldom read.
OF_MATRICES: Final = ("image_shape", "orientation")


def shown_if(config: type[Config]) -> dict[str, tuple[str, Value] | None]:
    """Return for every setting the input and the value under which the form shows it."""
    # The application tests the value of one input, shown or not, so a setting that depends on an
    # expert setting gets the condition of that setting.
    parents = {field.name: field.metadata["when"] for field in dataclasses.fields(config)}
    # A setting that is for experts in most computations is so in all.
    both = (*dataclasses.fields(Config), *dataclasses.fields(config))
    rare = {field.name for field in both if field.metadata["expert"]}
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    if defaults["detrend"] == "none":
        rare |= {*OF_SERIES}
    if choices(typing.get_type_hints(config)["feature_space"]) == ("matrix",):
        rare |= {*OF_MATRICES}
    if not defaults["private"]:
        rare |= {"accept_low_quality"}  # without noise there is no forecast
    if config.SHOWN:
        rare = parents.keys() - {*config.SHOWN}

    def is_hidden(name: str) -> bool:
        return name in rare or (parents[name] is not None and is_hidden(parents[name][0]))

    return {name: (EXPERT, True) if is_hidden(name) else when for name, when in parents.items()}


def has_input(spec: Field[Any], hints: Mapping[str, object]) -> bool:
    """Whether a computation's form has a setting; `hints`: types of all its settings."""
    if spec.name in NOT_IN_COINSTAC:
        return False
    if spec.name in OF_IMAGES and choices(hints["feature_space"]) == ("matrix",):
        return False
    if spec.metadata["when"] is None:
        return True
    name, value = spec.metadata["when"]
    # For example the mask of a computation that reads matrices only.
    return value in choices(hints[name])


def read_form(path: Path) -> object:
    """Return the content of a JSON file; ConfigError E014 if it cannot be read."""
    try:
        return wire.loads(path.read_bytes())
    except (OSError, MessageError) as err:
        raise ConfigError("E014", detail=f"{path}: {own_words(err, str(err))}") from err


def settings_text(form: object, given: Mapping[str, object] | None = None) -> str:
    """Return the settings.toml of a form: the computation and the settings that are not defaults.

    `given` replaces values of the form.

    ConfigError E011 if it is no form or its sites have different settings, E010 to E013 for
    settings that a run would refuse.
    """
    settings = {**_owner_settings(form), **(given or {})}
    computation, config = configured(settings)
    head = f"# From the form of {computation.name}, cape {VERSION}.\n"
    return head + toml_text({"computation": computation.name, **not_default(config)})


def form_of(settings: Mapping[str, object]) -> dict[str, dict[str, Value]]:
    """Return the inputs of the form for the settings of a file.

    ConfigError E010 to E013; E011 also for a setting that the form lacks and would lose.
    """
    computation, config = configured(settings)
    values, hints = not_default(config), typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if field.name in values and not has_input(field, hints):
            do = f"the form of {computation.name} in COINSTAC has no such input; leave it out."
            raise out_of_range(field.name, values[field.name], str(field.default), do)
    named = {"computation": computation.name, **values}
    return {name: {"value": value} for name, value in named.items()}


def _owner_settings(form: object) -> dict[str, object]:
    sites: list[Any] = form if isinstance(form, list) else [form]
    allowed = 'a form: {"<input>": {"value": ..}, ..}, or one for each site in a list'
    if not sites or not all(_is_form(site) for site in sites):
        got, do = "another document", "take an inputspec.json or the inputMap of a pipeline."
        raise out_of_range("form", got, allowed, do)
    first, *others = [
        {name: given["value"] for name, given in site.items() if name not in (*SITE_INPUTS, EXPERT)}
        for site in sites
    ]
    if differing := sorted(
        name for other in others for name in {*first, *other} if first.get(name) != other.get(name)
    ):
        got, do = f"{differing[0]} differs between sites", "settings are the owner's: one value."
        raise out_of_range("form", got, "the same settings", do)
    return first


def _is_form(site: object) -> bool:
    return isinstance(site, dict) and all(
        isinstance(given, dict) and "value" in given for given in site.values()
    )
