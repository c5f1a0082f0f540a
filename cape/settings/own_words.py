"""What a site says of its own files, in its own site-policy.toml; it goes nowhere else."""

from __future__ import annotations

from typing import Final

from cape.frozen import dataclass

POLICY_FILE: Final = "site-policy.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWords:
    """Patterns of paths that somebody at the site typed, and columns that leave nobody out."""

    layout: tuple[str, ...] = ()
    not_exclusions: str = ""  # with commas between

    @property
    def other_columns(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.not_exclusions.split(","))
