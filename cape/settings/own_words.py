"""A site's statements about its own files, in its site-policy.toml; they never leave the site."""

from __future__ import annotations

from typing import Final

from cape.frozen import dataclass

POLICY_FILE: Final = "site-policy.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWords:
    """Path patterns typed at the site, and columns that exclude no person."""

    layout: tuple[str, ...] = ()
    not_exclusions: str = ""  # separated by commas

    @property
    def other_columns(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.not_exclusions.split(","))
