"""Where a site keeps its own files, as its operator says it.

Read once, at the rim of a program, and passed down through every call: two sites of one process
have each their own, and nothing that a consortium sends names any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from cape.frozen import dataclass

POLICY_VARIABLE = "CAPE_SITE_POLICY"
IDENTITY_VARIABLE = "CAPE_SITE_IDENTITY"
HOME_VARIABLE = "CAPE_SITE_HOME"
IMAGE_VARIABLE = "CAPE_IMAGE_DIGEST"
STORE_VARIABLE = "CAPE_CACHE"
MAPS_VARIABLE = "CAPE_SITE_MAPS"
VARIABLES = (
    POLICY_VARIABLE, IDENTITY_VARIABLE, HOME_VARIABLE, IMAGE_VARIABLE, STORE_VARIABLE,
    MAPS_VARIABLE,
)  # fmt: skip
NO_STORE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePlaces:
    """What the operator of a site names; None where nothing is named.

    In `home` lies what outlives a run and is never sent: the ledger of all runs and the records of
    access beside it (`cape.site.ledger_file`), the site's key and the keys that it met
    (`cape.site.identity`, ``key_trust=first-use``).
    """

    policy: Path | None = None  # site-policy.toml; None = the one that the site maps, if any
    identity: Path | None = None  # folder of identity_key and roster.json
    home: Path | None = None
    image: str = ""  # digest of the container's image, which only who starts it knows
    # Folder of what was read of the site's files; `NO_STORE`: none; "" = see `store_folder`
    store: str = ""
    maps: Path | None = None  # file of public maps; None = the one in the folder of the data
    user_cache: Path | None = None  # this user's folder for what can be made again

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Self:
        def path(name: str) -> Path | None:
            return Path(text) if (text := variables.get(name)) else None

        user = path("HOME")
        return cls(
            policy=path(POLICY_VARIABLE),
            identity=path(IDENTITY_VARIABLE),
            home=path(HOME_VARIABLE),
            image=variables.get(IMAGE_VARIABLE, ""),
            store=variables.get(STORE_VARIABLE, ""),
            maps=path(MAPS_VARIABLE),
            user_cache=path("XDG_CACHE_HOME") or (user and user / ".cache"),
        )

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return `variables` with these places and no others, for a process that is started."""
        own = (self.policy, self.identity, self.home, self.image, self.store, self.maps)
        rest = {name: text for name, text in variables.items() if name not in VARIABLES}
        return rest | {name: str(v) for name, v in zip(VARIABLES, own, strict=True) if v}

    def store_folder(self, home: Path | None = None) -> Path | None:
        """Return the folder of `cape.data.data_store`; None: nothing is kept of what was read.

        The one that is named, else in the site's home (`home`: that of an engine's run), else in
        `user_cache`, where commands and simulations share it.
        """
        if self.store:
            return None if self.store == NO_STORE else Path(self.store).expanduser()
        if (of_site := self.home or home) is not None:
            return of_site / "data"
        return self.user_cache and self.user_cache / "cape"
