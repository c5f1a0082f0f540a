"""Paths of a site's own files, chosen by its operator.

A program reads them once from its environment and passes them on, so that two sites of one process
have different paths.  No message of a consortium can name one of them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from cape.frozen import dataclass

POLICY_VARIABLE = "CAPE_SITE_POLICY"
IDENTITY_VARIABLE = "CAPE_SITE_IDENTITY"
HOME_VARIABLE = "CAPE_SITE_HOME"
IMAGE_VARIABLE = "CAPE_IMAGE_DIGEST"
STORE_VARIABLE = "CAPE_CACHE"
MAPS_VARIABLE = "CAPE_SITE_MAPS"
PLACE_VARIABLE = "CAPE_SIMULATED_SITE"
VARIABLES = (
    POLICY_VARIABLE, IDENTITY_VARIABLE, HOME_VARIABLE, IMAGE_VARIABLE, STORE_VARIABLE,
    MAPS_VARIABLE, PLACE_VARIABLE,
)  # fmt: skip
NO_STORE = "none"
# A simulation's own files: the setup of a finished run, and the folder in which it works until
# then, with what it began with and its state after the last exchange
SETUP_FILE = "run.json"
WORK = ".work"
BEGUN, STATE = "begun.json", "state.json"
# Key of a state whose results have only to be put in place; the notices of sites are its value
IN_PLACE = "told"
# Folder of files that outlive a run where no home is named; hidden, so that it is not read as data
HOME: Final = ".cape-site"


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePlaces:
    """Paths that the operator of a site names; None: not named.

    `home` holds files that outlive a run and are never sent: the ledger of all runs with its
    records of access (`cape.site.ledger_file`), the site's key and the known keys of other sites
    (`cape.site.identity`, ``key_trust=first-use``).
    """

    policy: Path | None = None  # site-policy.toml; None = the mapped one, if any
    identity: Path | None = None  # folder of identity_key and roster.json
    home: Path | None = None
    image: str = ""  # digest of the container's image; the container itself cannot find it out
    # Folder for data read from the site's files; `NO_STORE`: none; "" = see `store_folder`
    store: str = ""
    maps: Path | None = None  # file of public maps; None = the one in the folder of the data
    # Tells people of simulated sites apart, which share a ledger and names; empty: a site alone
    place: str = ""
    # Whether the engine keeps the folder of the data from run to run, and puts no file into it
    data_last: bool = False
    user_cache: Path | None = None  # cache folder of this user

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
            place=variables.get(PLACE_VARIABLE, ""),
            user_cache=path("XDG_CACHE_HOME") or (user and user / ".cache"),
        )

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a new process: `variables` with these paths and no others."""
        own = (
            *(self.policy, self.identity, self.home, self.image, self.store, self.maps),
            self.place,
        )
        rest = {name: text for name, text in variables.items() if name not in VARIABLES}
        return rest | {name: str(v) for name, v in zip(VARIABLES, own, strict=True) if v}

    def store_folder(self, home: Path | None = None) -> Path | None:
        """Return the folder of `cape.data.data_store`; None: data that were read are not stored.

        It is the named folder, else one in the site's home (`home`: that of an engine's run), else
        one in `user_cache`, which commands and simulations share.
        """
        if self.store:
            return None if self.store == NO_STORE else Path(self.store).expanduser()
        if (of_site := self.home or home) is not None:
            return of_site / "data"
        return self.user_cache and self.user_cache / "cape"
