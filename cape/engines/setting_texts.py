"""What forms and pages say of settings: TOML files beside the modules that declare them."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping
from pathlib import Path

from cape.frozen import dataclass
from cape.settings.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """What forms and pages say of a setting."""

    label: str
    unit: str = ""
    help: str = ""

    @property
    def meaning(self) -> str:
        """Label and help as one cell of a table."""
        return f"{self.label}. {self.help}".strip().replace("|", "\\|")


def texts_of(config: type[Config]) -> Mapping[str, Text]:
    """Return the texts of all settings; a class declares its own, and those of its bases."""
    found: dict[str, Text] = {}
    for cls in reversed(config.__mro__[:-1]):
        path = Path(inspect.getfile(cls)).with_suffix(".toml")
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        own = [name for name in vars(cls).get("__annotations__", {}) if name in table]
        found |= {name: Text(**table[name]) for name in own}
    # A computation that somebody tries out may have no such file yet.
    return {
        spec.name: found.get(spec.name, Text(label=spec.name))
        for spec in dataclasses.fields(config)
    }
