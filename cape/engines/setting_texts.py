"""Labels and help texts of settings: TOML files beside the modules that declare them."""

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.option import choices


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Label and help text of a setting."""

    label: str
    unit: str = ""
    help: str = ""

    @property
    def meaning(self) -> str:
        """Label and help text as one table cell."""
        return f"{self.label}. {self.help}".strip().replace("|", "\\|")


def texts_of(config: type[Config]) -> Mapping[str, Text]:
    """Return the texts of all settings of a class, including those of its bases."""
    found: dict[str, Text] = {}
    for cls in reversed(config.__mro__[:-1]):
        path = Path(inspect.getfile(cls)).with_suffix(".toml")
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        own = [name for name in vars(cls).get("__annotations__", {}) if name in table]
        found |= {name: Text(**table[name]) for name in own}
    # A new computation may lack this file.
    return {
        spec.name: found.get(spec.name, Text(label=spec.name))
        for spec in dataclasses.fields(config)
    }


def groups(config: type[Config]) -> list[str]:
    """Return the groups of settings in the order of forms and pages."""
    found = dict.fromkeys(spec.metadata["group"] for spec in dataclasses.fields(config))
    # Budget first: it decides about privacy.
    first = [group for group in ("Privacy", "Analysis") if group in found]
    return [*first, *(group for group in found if group not in first)]


def values_text(spec: Field[Any], hint: object, unit: str) -> str:
    if values := choices(hint):
        return ", ".join(f"`{value}`" for value in values)
    if hint is bool:
        return "`true`, `false`"
    low, high = spec.metadata["low"], spec.metadata["high"]
    if hint is str:
        return "text"
    kind = "whole number" if hint is int else "number"
    unit = f" {unit}" if unit else ""
    if low is None and high is None:
        return kind + unit
    if high is None:
        return f"{kind}, {low:g}{unit} or more"
    return f"{kind}, {low:g} to {high:g}{unit}" if low is not None else f"{kind} up to {high:g}"


def default_text(default: object) -> str:
    if default is MISSING:
        return "(required)"
    if default == "":
        return "(empty)"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
