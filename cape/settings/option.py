"""Declare settings, convert their values, and refuse wrong ones."""

import dataclasses
import math
import typing
from dataclasses import MISSING, field
from typing import Any, Literal

from cape.errors import ConfigError

Value = str | int | float | bool | None


def option(
    default: Any = MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    group: str = "Analysis",
    when: tuple[str, Value] | None = None,
    expert: bool = False,
) -> Any:
    """Declare a setting; without a default the owner must choose.  Bounds are inclusive.

    Label, unit and help are in the TOML file beside its module.  `when` names another setting and
    the value that it must have for this one to take effect.  `expert`: forms show it only among
    all settings.
    """
    # Forms and pages are generated from this metadata.
    metadata = dict(low=low, high=high, group=group, when=when, expert=expert)
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


# Names of settings share their endings, so suggestions below this likeness are mostly wrong.
LIKENESS: typing.Final = 0.72


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """Return the name that is most like another one, "" if none is."""
    # Imported here: only a mistake needs it.
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=LIKENESS)
    return near[0] if near else ""


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""


def choices(hint: object) -> tuple[str, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def out_of_range(
    name: str, got: object, allowed: str, do: str = "correct the setting."
) -> ConfigError:
    return ConfigError("E011", setting=name, got=got, allowed=allowed, do=do)


# Narrowest and widest public range of a column, and how far its ends may lie from 0, in widths:
# people's numbers are divided by the width, which must neither vanish nor overflow.
MIN_WIDTH: typing.Final = 4e-9
MAX_WIDTH: typing.Final = 4e9
MAX_ENDS: typing.Final = 1e9


def check_ends(name: str, got: object, low: float, high: float) -> None:
    """Raise ConfigError E011 unless numbers between `low` and `high` can be told apart."""
    width = high - low
    if not (MIN_WIDTH <= width <= MAX_WIDTH and max(abs(low), abs(high)) <= MAX_ENDS * width):
        allowed = "ranges from 4e-9 to 4e9 wide, within 1e9 widths of 0"
        raise out_of_range(name, got, allowed, "state the column in another unit.")


def coerce(spec: dataclasses.Field[Any], hint: object, got: object) -> Value:
    """Return `got` as the declared type of the setting, or raise ConfigError."""
    if values := choices(hint):
        # `global_signal = true` is allowed beside "auto".
        got = str(got).lower() if isinstance(got, bool) else got
        if got not in values:
            near = did_you_mean(str(got), values).lstrip("; ")
            raise out_of_range(spec.name, got, ", ".join(values), near or "choose one of them.")
        return str(got)
    # Forms and ``--set`` give text: "8" for a number, "true" for a boolean.
    if hint is bool:
        text = str(got).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise out_of_range(spec.name, got, "true or false")
        return text in ("true", "1", "yes")
    if hint is str:
        if not isinstance(got, str):
            do = "correct the setting."
            if isinstance(got, list):
                sign = " + " if spec.name == "formula" else ", "
                do = f'write {spec.name} = "{sign.join(map(str, got))}".'
            raise out_of_range(spec.name, got, "a text", do)
        return got
    return _number(spec, hint, got)


def _number(spec: dataclasses.Field[Any], hint: object, got: object) -> Value:
    low, high = spec.metadata["low"], spec.metadata["high"]
    kind = "a whole number" if hint is int else "a number"
    lowest = 1 if spec.name == "n_sites" else low  # of which 0 means: not stated
    allowed = (
        f"{'-inf' if lowest is None else format(lowest, 'g')} to "
        f"{'inf' if high is None else format(high, 'g')}"
    )
    number = math.nan
    # Python counts booleans as numbers, but `n_rounds = true` is a mistake.
    if isinstance(got, str | int | float) and not isinstance(got, bool):
        try:
            number = float(got)
        except (ValueError, OverflowError):  # no number, or an int past the largest float
            number = math.nan
    outside = (low is not None and number < low) or (high is not None and number > high)
    if not math.isfinite(number) or outside or (hint is int and number != int(number)):
        raise out_of_range(spec.name, got, f"{kind}, {allowed}")
    return int(number) if hint is int else number
