"""Settings: one dataclass gives validation, compspec inputs, command-line options and docs."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from cape.counting import number_of
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings import words
from cape.settings.option import Value, coerce, did_you_mean, option, out_of_range

if TYPE_CHECKING:  # one computation has it
    from cape.settings.question import Question

VERSION = "0.1.0"

# Default computation
PRODUCT: Final = "capedjica"
# Names of folders of results, which no site has
RESERVED: Final = ("consortium", "remote")
# Of every road that takes names of sites: each is one folder, and one word of site_names
MAX_SITE_NAME: Final = 200  # bytes
NO_SITE_NAME: Final = f"not {' or '.join(RESERVED)}, and none with / \\ or a comma, or a dot first"
# The computation of the form at the top of this project, which owners see first
FRONT: Final = "capegica"

# d (d + 1)/2 masked integers of 8 bytes must fit one array of 64 MiB (cape/protocol/wire.py).
MAX_BASIS = 4095

# Largest cosine basis whose share of the maps' energy was measured (`cape.forecast.temporal`).
MAX_MEASURED_BASIS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Defaults of one computation for data and basis."""

    smooth_basis: Literal["dct", "kernel"] = "dct"  # of voxels
    brains: bool = False  # use cleaning, kernel and mirror for spatial maps of real brains
    templates: bool = False  # public template maps are part of the feature space
    courses: bool = False  # reduce people to the time courses of those maps
    widest: int  # largest d that may be chosen
    by_volume: bool = False  # of a mask, d follows from its volume (`public_basis.size_of_volume`)
    max_components: int  # largest R that may be chosen; 0 without components
    room: float = math.inf  # largest R per feature, where R follows from the run


# Settings that no check of people's data reads: with another budget or other sites the same pass.
UNCHECKED: Final = frozenset((
    "epsilon", "delta", "assumed_colluders", "aggregation", "min_survivors", "noise", "key_trust",
    "n_sites", "site_names", "min_sites", "accept_low_quality",
))  # fmt: skip

# -- the settings of every computation -----------------------------------------------------------


# Settings of a run of one site, which has no partner to share noise or masks with.
ONE_SITE: Final[Mapping[str, object]] = {"min_sites": 1, "noise": "local"}


ALONE: Final = (
    "one site: any noise is all its own; the sites of a consortium share one noise at the same "
    "epsilon, and nobody sees the sum of one"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Settings that every computation has: the budget, the parties, the secure sum, the data.

    docs/config.md lists them with units and ranges; `from_input` checks and converts them.

    Examples
    --------
    >>> config = cape.Config.from_input({"epsilon": "2", "delta": 1e-5})
    >>> config.epsilon, config.private
    (2.0, True)
    """

    # Settings that a form shows, in this order; all others are for experts.  Empty: as options say
    SHOWN: ClassVar[tuple[str, ...]] = ()

    epsilon: float = option(low=1e-4, high=1000.0, group="Privacy")
    delta: float = option(low=1e-15, high=0.1, group="Privacy")
    private: bool = option(True, group="Privacy", expert=True)
    assumed_colluders: int = option(-1, low=-1, group="Privacy", expert=True)
    aggregation: Literal["all-sites", "secagg"] = option("all-sites", group="Privacy")
    min_survivors: int = option(0, low=0, group="Privacy", when=("aggregation", "secagg"))
    noise: Literal["correlated", "local"] = option("correlated", group="Privacy", expert=True)
    key_trust: Literal["first-use", "pinned", "aggregator"] = option(
        "first-use", group="Privacy", expert=True
    )
    n_sites: int = option(0, low=0, group="Privacy")
    site_names: str = option("", group="Privacy", expert=True)
    min_sites: int = option(3, low=1, group="Privacy", expert=True)
    accept_low_quality: bool = option(False, group="Privacy")
    feature_space: Literal["mask", "atlas", "matrix", "grayordinates", "parcels"] = option(
        "mask", group="Data"
    )
    mask: str = option("MNI152-4mm", group="Data", when=("feature_space", "mask"))
    mask_hash: str = option("", group="Data", when=("feature_space", "mask"), expert=True)
    atlas: str = option("", group="Data", when=("feature_space", "atlas"))
    space: str = option("", group="Data", expert=True)
    basis: Literal["auto", "dct", "kernel", "atlas", "templates", "none"] = option(
        "auto", group="Data", expert=True
    )
    n_basis: int = option(0, low=0, high=MAX_BASIS, group="Data", expert=True)
    max_features: int = option(1000, low=2, high=MAX_BASIS, group="Data", expert=True)
    n_features: int = option(0, low=0, group="Data", when=("feature_space", "matrix"))
    image_shape: str = option("", group="Data", when=("feature_space", "matrix"))
    columns: str = option("", group="Data", when=("feature_space", "matrix"))
    orientation: Literal["time_by_feature", "feature_by_time"] = option(
        "feature_by_time", group="Data", when=("feature_space", "matrix")
    )
    variable: str = option("X", group="Data", when=("feature_space", "matrix"), expert=True)
    bids_filter: str = option("auto", group="Data")
    bids_exclude: str = option("", group="Data")
    tr: float = option(0.0, low=0.0, high=20.0, group="Data")
    tr_tolerance: float = option(1e-3, low=0.0, group="Data", expert=True)
    min_timepoints: int = option(100, low=3, group="Data")
    max_timepoints: int = option(0, low=0, group="Data", expert=True)
    drop_first_volumes: int = option(0, low=0, high=1000, group="Data", expert=True)
    smoothing_fwhm: float = option(0.0, low=0.0, high=30.0, group="Data", expert=True)
    resample: Literal["within_space", "never", "to_mask"] = option(
        "within_space", group="Data", expert=True
    )
    detrend: Literal["auto", "linear", "quadratic", "none"] = option(
        "auto", group="Data", expert=True
    )
    high_pass: float = option(0.0, low=0.0, high=5.0, group="Data")
    low_pass: float = option(0.0, low=0.0, high=5.0, group="Data", expert=True)
    confounds: str = option("none", group="Data", expert=True)
    confound_strategy: str = option("none", group="Data")
    fd_threshold: float = option(0.5, low=0.0, high=100.0, group="Data", expert=True)
    dvars_threshold: float = option(1.5, low=0.0, high=1000.0, group="Data", expert=True)
    max_mean_fd: float = option(0.0, low=0.0, high=100.0, group="Data", expert=True)
    min_minutes: float = option(0.0, low=0.0, high=1440.0, group="Data", expert=True)
    global_signal: Literal["auto", "true", "false"] = option("auto", group="Data", expert=True)
    standardize: Literal["auto", "variance", "floored", "demean", "none"] = option(
        "auto", group="Data", expert=True
    )

    # A method: it depends on settings that only some computations have.
    def recipe(self) -> Recipe:
        """Return this computation's defaults; only `cape.settings.resolved` reads them."""
        return Recipe(
            widest=min(MAX_MEASURED_BASIS, self.max_features),
            max_components=int(getattr(self, "n_components", 0)),
        )

    @property
    def of_cifti(self) -> bool:
        return self.feature_space in words.CIFTI

    @property
    def declared_columns(self) -> tuple[str, ...]:
        return words.parse_columns(self.columns)

    @property
    def declared_features(self) -> int:
        """D of array files from the settings; 0: not given."""
        pixels = math.prod(words.parse_shape(self.image_shape)) if self.image_shape else 0
        return self.n_features or pixels or len(self.declared_columns)

    def check(self) -> None:
        """Raise ConfigError for settings that contradict each other; subclasses extend it."""
        # Only a run without noise has delta = 0, which has no privacy guarantee.
        if self.private and not 0 < self.delta < 1:
            raise ConfigError(
                "E011", setting="delta", got=self.delta, allowed="1e-15 to 0.1", do="1e-5 is usual."
            )
        self._check_roster()
        if self.min_sites < 2 and self.private and self.noise != "local":
            problem = "min_sites=1: one site alone must add all of the noise"
            raise ConfigError("E012", problem=problem, do="use noise=local, or more sites.")
        if self.mask.startswith("MNI152-"):
            known = [f"MNI152-{mm}mm" for mm in (10, 8, 6, 4, 3)]
            if self.mask not in known:
                raise out_of_range("mask", self.mask, ", ".join([*known, "file"]))
        elif not re.fullmatch(r"file|(mask|tpl-)[^/]*\.nii(\.gz)?", self.mask):
            # Otherwise the owner could name a person's image; its digest leaves without noise.
            allowed = "MNI152-10mm, -8mm, -6mm, -4mm, -3mm, file, or a name such as mask.nii.gz or "
            raise out_of_range("mask", self.mask, allowed + "tpl-MNI152NLin6Asym_mask.nii.gz")
        if self.atlas and not self.atlas.lower().startswith("atlas"):
            raise out_of_range("atlas", self.atlas, "a name that begins with atlas")
        if not re.fullmatch(r"[A-Za-z0-9]*", self.space):
            raise out_of_range("space", self.space, "letters and digits, as after space- in a name")
        self._check_layout()
        if 0 < self.max_timepoints < self.min_timepoints:
            problem = f"max_timepoints={self.max_timepoints} is below min_timepoints"
            do = "raise it, or lower min_timepoints: nobody would have enough."
            raise ConfigError("E012", problem=problem, do=do)
        if 0 < self.low_pass <= self.high_pass:
            raise out_of_range("low_pass", self.low_pass, f"above high_pass = {self.high_pass}")
        # It names a member of an archive, so it must contain no path.
        if not self.variable.isidentifier():
            raise out_of_range("variable", self.variable, "a name of letters, digits and _")
        words.confound_columns(self.confounds)
        words.parse_strategy(self.confound_strategy)
        if self.bids_filter != "auto":
            words.parse_entities(self.bids_filter)
        if self.of_cifti and self.smoothing_fwhm:
            problem = f"smoothing_fwhm with feature_space={self.feature_space}"
            do = "smooth on the surface first, such as with wb_command -cifti-smoothing."
            raise ConfigError("E012", problem=problem, do=do)
        words.parse_exclusions(self.bids_exclude)

    def _check_layout(self) -> None:
        names = self.declared_columns
        if not all(names) or len(set(names)) < len(names):
            raise out_of_range(
                "columns", self.columns[:60], "different names, such as dmn,salience"
            )
        pixels = math.prod(words.parse_shape(self.image_shape)) if self.image_shape else 0
        said = {"n_features": self.n_features, "image_shape": pixels, "columns": len(names)}
        said = {name: n for name, n in said.items() if n}
        if len(set(said.values())) > 1:
            problem = " and ".join(f"{name} says {n} features" for name, n in said.items())
            raise ConfigError("E012", problem=problem, do="count the features again.")

    def _check_roster(self) -> None:
        names = self.expected_names
        if not all(map(is_site_name, names)) or len(set(names)) < len(names):
            allowed = f"different names, such as local0,local1,local2; {NO_SITE_NAME}"
            raise out_of_range("site_names", self.site_names, allowed)
        if names and self.n_sites not in (0, len(names)):
            problem = f"n_sites={self.n_sites}, and site_names has {len(names)}"
            raise ConfigError("E012", problem=problem, do="count the sites again.")

    @property
    def expected_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.site_names.split(",") if self.site_names)

    @property
    def expected_sites(self) -> int:
        """S from the settings; 0: not given."""
        return self.n_sites or len(self.expected_names)

    def wrong_sites(self, sites: Sequence[str]) -> str:
        """Return why these sites of a run are wrong; empty if they are the expected ones."""
        if self.expected_names and sorted(self.expected_names) != sorted(sites):
            return f"the sites are {', '.join(sites)}, but site_names says {self.site_names}"
        return self.wrong_number(len(sites))

    def wrong_number(self, n_sites: int) -> str:
        joined = f"{number_of(n_sites, 'site')} joined"
        if self.expected_sites not in (0, n_sites):
            return f"{joined}, but n_sites is {self.expected_sites}"
        if n_sites < self.min_sites:
            return f"{joined}, but min_sites is {self.min_sites}"
        return ""

    def ratio(self, n_sites: int) -> int:
        """Return the seed_ratio of every release; 0: sums travel under masks."""
        # A method: a computation of the papers has another carrier (`cape.papers.carriers`).
        return 0

    @property
    def question(self) -> Question | None:
        """What a comparison asks; None in other computations."""
        return None

    @property
    def counted(self) -> tuple[str, ...]:
        """Columns whose level counts every site publishes; its policy must allow them."""
        return ()

    def colluders(self, n_sites: int) -> int:
        # S_C: max(1, ceil(S/3) - 1) by default, the papers' number but at least one; a single site
        # has no other site that could collude.
        if self.assumed_colluders >= 0:
            return self.assumed_colluders
        return min(n_sites - 1, max(1, math.ceil(n_sites / 3) - 1))

    def survivors(self, n_sites: int) -> int:
        """Return t, the sites that must answer: all, or ``max(min_survivors, 2 S // 3 + 1)``."""
        if self.aggregation == "all-sites":
            return n_sites
        return max(self.min_survivors, 2 * n_sites // 3 + 1)

    @classmethod
    def from_input(cls, given: Mapping[str, object]) -> Self:
        """Return checked settings from those of a form or a file; a value may be text.

        ConfigError CAPE-E010: no such setting, E011: a wrong value, E013: no epsilon.
        """
        options = {f.name: f for f in dataclasses.fields(cls)}
        for name in given:
            if name not in options:
                raise ConfigError("E010", setting=name, hint=did_you_mean(name, options))
        hints = _type_hints(typing.cast(Any, cls))
        private = given.get("private")
        if private is None:
            private = options["private"].default
        # Read first, because a run without noise needs no epsilon.
        unprotected = not coerce(options["private"], hints["private"], private)
        values: dict[str, Any] = {}
        for name, spec in options.items():
            unset = given.get(name) is None
            if spec.default is MISSING and unprotected and given.get(name) == 0:
                unset = True  # settings without noise travel with epsilon = 0
            if not unset:
                values[name] = coerce(spec, hints[name], given[name])
            elif spec.default is MISSING:
                if not unprotected:
                    raise ConfigError("E013", setting=name, do="the owner chooses it.")
                values[name] = 0.0  # no privacy guarantee
        config = cls(**values)
        config.check()
        return config

    def settings(self) -> dict[str, Value]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def digest(self) -> str:
        """Return the SHA-256 of settings and package version, as 64 hex digits."""
        # The same settings may mean another computation in another version.
        text = json.dumps([type(self).__name__, VERSION, self.settings()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def checks_digest(self, computation: str) -> str:
        """Return the SHA-256 of the computation and all settings but `UNCHECKED`."""
        asked = {name: got for name, got in self.settings().items() if name not in UNCHECKED}
        text = json.dumps([computation, VERSION, asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _type_hints(cls: Any) -> dict[str, Any]:
    # Evaluating 80 annotations takes time, and a process asks more than once.
    return typing.get_type_hints(cls)


def is_site_name(name: str) -> bool:
    """Whether a site may have this name: `NO_SITE_NAME` says which may not be."""
    odd = set(name) & set("/\\,") or name.startswith(".") or name != name.strip()
    fits = 0 < len(name.encode()) <= MAX_SITE_NAME and name.isprintable()
    return fits and not odd and name not in RESERVED
