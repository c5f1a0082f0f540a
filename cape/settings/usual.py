"""Usual ranges of columns in studies of brains, by name: never taken from anybody's data.

`cape init` proposes them, and what a site is told of a column names other names of the same thing.
"""

import re
from typing import Final, NamedTuple


class Usual(NamedTuple):
    """A range that holds nearly everybody, in the unit that is meant."""

    low: float
    high: float
    unit: str
    is_outcome: bool  # compared, rather than adjusted for


_VOLUME: Final = "mm3"
# Names in small letters, without sides, signs and the word volume
_USUAL: Final = {
    ("age", "ageyears", "ageatscan", "alter"): Usual(18, 90, "years", False),
    ("icv", "etiv", "tiv", "intracranial", "estimatedtotalintracranialvol",
     "estimatedtotalintracranial"): Usual(1000, 2100, "cm3", False),
    ("education", "educ", "edu", "educationyears", "yearsofeducation"):
        Usual(0, 25, "years", False),
    ("iq", "fsiq", "wasi", "nart"): Usual(40, 160, "", False),
    ("bmi",): Usual(12, 60, "kg/m2", False),
    ("height",): Usual(130, 215, "cm", False),
    ("weight",): Usual(30, 200, "kg", False),
    ("fdmean", "meanfd", "fd", "meanframewisedisplacement"): Usual(0, 0.5, "mm", False),
    ("panss", "pansstotal", "totalpanss"): Usual(30, 210, "", False),
    ("mmse",): Usual(0, 30, "", False),
    ("moca",): Usual(0, 30, "", False),
    ("hdrs", "hamd", "hdrs17"): Usual(0, 52, "", False),
    ("madrs",): Usual(0, 60, "", False),
    ("bdi", "bdi2", "bdiii"): Usual(0, 63, "", False),
    ("ymrs",): Usual(0, 60, "", False),
    ("hippocampus", "hippo", "hipp"): Usual(2500, 5500, _VOLUME, True),
    ("amygdala", "amyg"): Usual(900, 2300, _VOLUME, True),
    ("thalamus", "thal", "thalamusproper"): Usual(4900, 9500, _VOLUME, True),
    ("accumbens", "accumb", "accumbensarea"): Usual(250, 950, _VOLUME, True),
    ("caudate", "caud"): Usual(2100, 5300, _VOLUME, True),
    ("putamen", "put"): Usual(3500, 7700, _VOLUME, True),
    ("pallidum", "pal"): Usual(1050, 2450, _VOLUME, True),
    ("ventricle", "lateralventricle", "latvent"): Usual(3000, 40000, _VOLUME, True),
    ("thickness", "meanthickness"): Usual(2, 3, "mm", True),
}  # fmt: skip
_BY_NAME: Final = {name: usual for names, usual in _USUAL.items() for name in names}
_SIDES: Final = frozenset(("left", "right", "l", "r", "lh", "rh", "mean", "vol", "volume", "mm3"))


def usual_range(column: str) -> Usual | None:
    """Return the usual range of a column by its name; None for a name that is not known."""
    return _BY_NAME.get(_key(column))


def are_alike(one: str, other: str) -> bool:
    """Tell whether two names are of the same thing, such as ICV and eTIV."""
    found = usual_range(one)
    return found is not None and found is usual_range(other)


def _key(column: str) -> str:
    words = re.findall(r"[^\W_]+", column.lower())
    return "".join(word for word in words if word not in _SIDES) or "".join(words)
