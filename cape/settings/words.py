"""Parsers of settings: BIDS entities, sets and strategies of confounds, shapes."""

import re
from collections.abc import Mapping
from typing import Final

from cape.settings.option import did_you_mean, out_of_range

_MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")

# fMRIPrep's names of motion parameters (6 and 24 columns) and tissue means.
CONFOUND_SETS = {
    "motion6": _MOTION,
    "motion24": tuple(
        name + suffix
        for suffix in ("", "_derivative1", "_power2", "_derivative1_power2")
        for name in _MOTION
    ),
    "motion6+wm_csf": (*_MOTION, "white_matter", "csf"),
}


def parse_columns(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if text)


# ``bids_filter=auto`` for CIFTI files
CIFTI_ENTITIES = {"grayordinates": "space-fsLR_den-91k", "parcels": "space-fsLR"}

# Feature spaces of CIFTI files
CIFTI: Final = ("grayordinates", "parcels")

_MODELS = ("basic", "power2", "derivatives", "full")

# Parts of nilearn's load_confounds with their values; () for parts without values
STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "motion": _MODELS,
    "wm_csf": _MODELS,
    "global_signal": _MODELS,
    "high_pass": (),
    "compcor": (
        "anat_combined", "anat_separated",
        "temporal", "temporal_anat_combined", "temporal_anat_separated",
    ),
    "n_compcor": ("all", "a number"),
    "ica_aroma": ("full", "basic"),
    "tedana": ("aggressive", "non-aggressive"),
    "scrub": ("a number",),
    "non_steady_state": (),
}  # fmt: skip


def confound_columns(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return ()
    names = CONFOUND_SETS.get(text) or tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"[A-Za-z0-9_.+-]+", name) for name in names):
        raise out_of_range(
            "confounds",
            text,
            f"none, {', '.join(CONFOUND_SETS)} or names of columns",
            "separate columns by commas.",
        )
    # Otherwise "motion12" would be a column name that every site reports as missing.
    near = did_you_mean(names[0], CONFOUND_SETS) if len(names) == 1 else ""
    if near and names[0].startswith("motion"):
        raise out_of_range(
            "confounds", text, f"none, {', '.join(CONFOUND_SETS)}", near.lstrip("; ")
        )
    return tuple(dict.fromkeys(names))


def parse_strategy(text: str) -> dict[str, str]:
    """Return the parts of ``"motion=full,high_pass"`` with their values, "" for nilearn's default.

    ConfigError E011 for parts, values or combinations that nilearn does not support.
    """
    if text in ("", "none"):
        return {}
    parts = [part.partition("=") for part in text.split(",")]
    strategy = {name.strip(): value.strip() for name, _, value in parts}
    if len(strategy) < len(parts):
        raise out_of_range("confound_strategy", text, "every part once")
    for name, value in strategy.items():
        if name not in STRATEGIES:
            near = did_you_mean(name, STRATEGIES).lstrip("; ")
            raise out_of_range("confound_strategy", name, ", ".join(STRATEGIES), near or "correct.")
        allowed = STRATEGIES[name]
        known = value in allowed or not value or (value.isdecimal() and "a number" in allowed)
        if not known or value == "a number":
            allowed_text = ", ".join(allowed) or "no value"
            raise out_of_range("confound_strategy", f"{name}={value}", allowed_text)
    if "compcor" in strategy and "high_pass" not in strategy:
        # fMRIPrep computes these components from filtered data.
        raise out_of_range("confound_strategy", text, "compcor with high_pass only")
    if "n_compcor" in strategy and "compcor" not in strategy:
        raise out_of_range("confound_strategy", text, "n_compcor with compcor only")
    if "tedana" in strategy and len(strategy) > 1:
        raise out_of_range("confound_strategy", text, "tedana alone: it has tables of its own")
    return strategy


def parse_entities(text: str, setting: str = "bids_filter") -> tuple[tuple[str, str], ...]:
    """Return the pairs of ``"task-rest_ses-1+2"``; ConfigError if it is not of that form.

    ``+`` joins alternative values of one entity.
    """
    pairs = tuple(part.partition("-")[::2] for part in text.split("_") if part)
    alnum = re.compile(r"[^\W_]+(\+[^\W_]+)*")
    if not all(re.fullmatch(r"[a-z]+", key) and alnum.fullmatch(value) for key, value in pairs):
        raise out_of_range(setting, text, "entities such as task-rest_desc-preproc")
    if any(key == "sub" for key, _ in pairs):
        # Otherwise an owner could find out whether a site has data of one person.
        raise out_of_range(
            setting, text, "entities of runs, not sub: only a site's own list chooses people"
        )
    return pairs


def parse_exclusions(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the parts of ``"task-nback,ses-2_run-1"``, as `parse_entities` does; ConfigError."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    return tuple(parse_entities(part, "bids_exclude") for part in parts)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the axes of ``"30,30"``; two whole numbers above 1, else ConfigError."""
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) != 2 or min(shape) < 2:
        raise out_of_range("image_shape", text, "two whole numbers such as 30,30")
    return shape
