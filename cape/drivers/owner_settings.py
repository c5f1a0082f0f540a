"""The owner's settings for a check: those of a file, with those of the caller on top."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cape.computations import load
from cape.config import Config
from cape.errors import ConfigError
from cape.phases import Computation

PRODUCT = "capedjica"
UNSET = {"epsilon": 1.0, "delta": 1e-5}
"""Stand for a budget that is not chosen yet; nothing is planned with them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The owner's settings, ready for checks.

    Attributes
    ----------
    computation : Computation
        Which one.
    config : Config
        Checked settings.
    has_budget : bool
        Whether epsilon and delta were given, or none are needed.
    """

    computation: Computation[Any]
    config: Config
    has_budget: bool


def settings_beside(folder: Path) -> Path | None:
    """Return the settings.toml in a folder, else the one beside it, else None."""
    places = (folder / "settings.toml", folder.resolve().parent / "settings.toml")
    return next((place for place in places if place.is_file()), None)


def read_settings(path: Path | None, given: Mapping[str, object]) -> Asked:
    """Return the settings of a file with those of the command line on top.

    Raises
    ------
    ConfigError
        The file cannot be read, or a setting is wrong.
    """
    values: dict[str, object] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
            raise ConfigError(
                "E012", problem="the settings cannot be read", do="correct the file.",
                detail=f"{path}: {err}",
            ) from err  # fmt: skip
    values |= given
    computation = load(str(values.pop("computation", PRODUCT)))
    config = computation.config.from_input({**UNSET, **values})
    has_budget = not config.private or {"epsilon", "delta"} <= set(values)
    return Asked(computation=computation, config=config, has_budget=has_budget)
