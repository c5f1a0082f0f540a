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
from dataclasses import MISSING, field
from typing import Any, Final, Literal, Self

from cape.errors import ConfigError
from cape.frozen import dataclass

Value = str | int | float | bool | None

VERSION = "0.1.0"

# The computation that runs where settings name none.
PRODUCT: Final = "capedjica"

_MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")

# Names that fMRIPrep gives to motion (6 and 24 columns) and to means of tissues.
CONFOUND_SETS = {
    "motion6": _MOTION,
    "motion24": tuple(
        name + suffix
        for suffix in ("", "_derivative1", "_power2", "_derivative1_power2")
        for name in _MOTION
    ),
    "motion6+wm_csf": (*_MOTION, "white_matter", "csf"),
}

# What ``bids_filter=auto`` asks for, where it is no image of a volume
ENTITIES = {"grayordinates": "space-fsLR_den-91k", "parcels": "space-fsLR"}

_MODELS = ("basic", "power2", "derivatives", "full")

# What nilearn's load_confounds can be asked for, and the values of each; () for those without one
STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "motion": _MODELS,
    "wm_csf": _MODELS,
    "global_signal": _MODELS,
    "high_pass": (),
    "compcor": (
        "anat_combined", "anat_separated",
        "temporal", "temporal_anat_combined", "temporal_anat_separated",
    ),
    "n_compcor": ("all", "a number"),
    "ica_aroma": ("full", "basic"),
    "tedana": ("aggressive", "non-aggressive"),
    "scrub": ("a number",),
    "non_steady_state": (),
}  # fmt: skip

# d (d + 1)/2 masked integers of 8 bytes must fit one array of 64 MiB (cape/protocol/wire.py).
LARGEST_BASIS = 4095

# Of the cosine bases whose share of the maps' energy is known (`cape.forecast.temporal`).
LARGEST_MEASURED_BASIS = 1000

SCALINGS = (
    "variance: by its own deviation.  floored: the same, but by no less than .3 of the median over "
    "the subject's voxels, so that voxels with hardly any signal do not become loud."
)

# What ``auto`` adds to the help of a setting that `Config.cleaning` resolves
BY_MODEL = "auto: quadratic, floored and true for spatial maps of images; linear, variance, false."


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    """How a run is cleaned, every ``auto`` resolved."""

    detrend: str  # {"none", "linear", "quadratic"}
    standardize: str  # {"variance", "floored", "demean", "none"}
    global_signal: bool  # whether the mean over the features is regressed out


# -- how a setting is declared, and how a value becomes one --------------------------------------


def option(
    default: Any = MISSING,
    label: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    group: str = "Analysis",
    help: str = "",
    when: tuple[str, Value] | None = None,
) -> Any:
    """Declare a setting; without a default the owner must choose.  Bounds are inclusive.

    `when` names another setting and the value of it without which this one does nothing.
    """
    # In the metadata of the field, so that forms and pages are generated from one declaration.
    metadata = dict(label=label, low=low, high=high, unit=unit, group=group, help=help, when=when)
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    # Only a mistake needs it: a round that goes well does not wait for its import.
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; ValueError if it has a key twice: two readers would take two values."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says, for whatever is no message; ValueError as for `unique_keys`."""
    return json.loads(text, object_pairs_hook=unique_keys)


def choices(hint: object) -> tuple[str, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def out_of_range(
    name: str, got: object, allowed: str, do: str = "correct the setting."
) -> ConfigError:
    return ConfigError("E011", setting=name, got=got, allowed=allowed, do=do)


def coerce(spec: dataclasses.Field[Any], hint: object, got: object) -> Value:
    """Return `got` as the declared type of the setting, or raise ConfigError."""
    if values := choices(hint):
        # A truth value among words: `global_signal = true` beside "auto".
        got = str(got).lower() if isinstance(got, bool) else got
        if got not in values:
            near = did_you_mean(str(got), values).lstrip("; ")
            raise out_of_range(spec.name, got, ", ".join(values), near or "choose one of them.")
        return str(got)
    # Forms and ``--set`` give texts: "8" is a number and "true" a truth value.
    if hint is bool:
        text = str(got).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise out_of_range(spec.name, got, "true or false")
        return text in ("true", "1", "yes")
    if hint is str:
        if not isinstance(got, str):
            raise out_of_range(spec.name, got, "a text")
        return got
    return _number(spec, hint, got)


def _number(spec: dataclasses.Field[Any], hint: object, got: object) -> Value:
    low, high = spec.metadata["low"], spec.metadata["high"]
    kind = "a whole number" if hint is int else "a number"
    allowed = (
        f"{'-inf' if low is None else format(low, 'g')} to "
        f"{'inf' if high is None else format(high, 'g')}"
    )
    number = math.nan
    # To Python a truth value is a number; to a person who types `n_rounds = true` it is a mistake.
    if isinstance(got, str | int | float) and not isinstance(got, bool):
        try:
            number = float(got)
        except (ValueError, OverflowError):  # no number, or an int past the largest float
            number = math.nan
    outside = (low is not None and number < low) or (high is not None and number > high)
    if not math.isfinite(number) or outside or (hint is int and number != int(number)):
        raise out_of_range(spec.name, got, f"{kind}, {allowed}")
    return int(number) if hint is int else number


# -- the settings of every computation -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Settings that every computation has: the budget, the parties, the secure sum, the data."""

    epsilon: float = option(
        label="Total epsilon",
        low=1e-4,
        high=1000.0,
        group="Privacy",
        help="Of the whole run, per subject, against the aggregator with the assumed colluders.",
    )
    delta: float = option(
        label="Delta",
        low=1e-15,
        high=0.1,
        group="Privacy",
        help="Below 1 / number of subjects; 1e-5 is usual.",
    )
    private: bool = option(
        True,
        "Add noise",
        group="Privacy",
        help="false: nothing is protected; every page and file says so.",
    )
    assumed_colluders: int = option(
        -1,
        "Sites that may collude with the aggregator",
        low=-1,
        group="Privacy",
        help="-1: max(1, ceil(S/3) - 1).  0 trusts every participating site.",
    )
    aggregation: Literal["all-sites", "secagg"] = option(
        "all-sites",
        "Secure aggregation",
        group="Privacy",
        help="all-sites: a missing site ends the run and nothing is revealed.  secagg: sites may "
        "drop out as long as min_survivors remain (Bonawitz et al. 2017).",
    )
    min_survivors: int = option(
        0,
        "Sites that must remain",
        low=0,
        group="Privacy",
        help="aggregation=secagg only; at least floor(2 S / 3) + 1.  The noise suffices for them.",
        when=("aggregation", "secagg"),
    )
    zero_sum: Literal["ring", "gaussian"] = option(
        "ring",
        "Zero-sum noise",
        group="Privacy",
        help="ring: uniform over the integers modulo 2^64, from pairwise keys.  gaussian: Imtiaz "
        "et al., Alg. 1 and 2, in exact integers, charged with the corrected formula.",
    )
    seed_ratio: int = option(
        1000,
        "Variance of a seed of the zero-sum noise over that of the local noise",
        low=0,
        high=10**6,
        group="Privacy",
        help="zero_sum=gaussian only; larger costs no accuracy.  0: as many as sites (the paper).",
        when=("zero_sum", "gaussian"),
    )
    noise: Literal["correlated", "local"] = option(
        "correlated",
        "Noise of one site",
        group="Privacy",
        help="local: each site adds the whole noise by itself and is seen by itself: S times the "
        "variance (the conventional scheme, for comparison).  With min_sites=1 one site alone.",
    )
    key_trust: Literal["first-use", "pinned", "aggregator"] = option(
        "first-use",
        "Who is trusted to relay keys",
        group="Privacy",
        help="first-use: the aggregator, where sites meet for the first time; each keeps the keys "
        "of the others, and refuses another key of a known name.  pinned: nobody; every site keeps "
        "its identity_key and the sites' roster.json.  aggregator: the aggregator, always; compare "
        "the roster fingerprints by phone.",
    )
    n_sites: int = option(
        0,
        "Number of sites",
        low=0,
        group="Privacy",
        help="The noise follows from it, and every site refuses a run of more or fewer.  0, not "
        "said: refused where sites share the noise, since nobody could tell real sites from "
        "invented ones.",
    )
    site_names: str = option(
        "",
        "Names of the sites",
        group="Privacy",
        help="As the engine gives them, separated by commas; every site refuses a run of others.  "
        "Empty: any n_sites.",
    )
    min_sites: int = option(
        3, "Fewest sites", low=1, group="Privacy", help="1: with private data and noise=local only."
    )
    accept_low_quality: bool = option(
        False, "Run although the maps will mostly show noise", group="Privacy"
    )
    feature_space: Literal["mask", "atlas", "matrix", "grayordinates", "parcels"] = option(
        "mask",
        "Feature space",
        group="Data",
        help="mask: voxels of 4-D images; atlas: parcel means; matrix: columns of array files; "
        "grayordinates: dtseries.nii; parcels: ptseries.nii (docs/howto-inputs.md).",
    )
    mask: str = option(
        "MNI152-4mm",
        "Mask",
        group="Data",
        help="MNI152-4mm suits images of fMRIPrep on any grid; -3mm, -6mm, -8mm, -10mm; or a file "
        "in the folder of every site: its name, which begins with mask or tpl-, or 'file' for "
        "mask.nii.gz.",
        when=("feature_space", "mask"),
    )
    mask_hash: str = option(
        "",
        "Expected hash of the mask",
        group="Data",
        when=("feature_space", "mask"),
    )
    atlas: str = option(
        "",
        "Name of the label image",
        group="Data",
        help="It begins with atlas.",
        when=("feature_space", "atlas"),
    )
    space: str = option(
        "",
        "Template space of the mask or atlas",
        group="Data",
        help="Such as MNI152NLin2009cAsym or MNI152NLin6Asym.  Empty: as space- or tpl- in the "
        "name of its file says, or its header; a bundled mask fits every MNI152 space.",
    )
    basis: Literal["auto", "dct", "kernel", "atlas", "templates", "none"] = option(
        "auto",
        "Public basis",
        group="Data",
        help="auto: dct for a mask, none for an atlas or a matrix; kernel for other separations.  "
        "templates: the maps of the owner's templates.nii.gz (.npy, .csv) in every site's folder.",
    )
    n_basis: int = option(
        0,
        "Size of the public basis",
        low=0,
        high=LARGEST_BASIS,
        group="Data",
        help="0: chosen from G.",
    )
    max_features: int = option(1000, "Largest basis", low=2, high=LARGEST_BASIS, group="Data")
    n_features: int = option(
        0,
        "Features of array files",
        low=0,
        group="Data",
        help="Of files of one person each; image_shape or columns say it, too.  A private run of "
        "such files without any of them is refused: what most files have depends on people.  A "
        "table of records says it by itself.",
        when=("feature_space", "matrix"),
    )
    image_shape: str = option(
        "",
        "Shape of 2-D images held in a matrix",
        group="Data",
        help="Such as 30,30.",
        when=("feature_space", "matrix"),
    )
    columns: str = option(
        "",
        "Names of the features",
        group="Data",
        help="In the order of the files, separated by commas.  Whose table has another header "
        "counts as zeros.  Empty: headers are not compared in a private run.",
        when=("feature_space", "matrix"),
    )
    orientation: Literal["time_by_feature", "feature_by_time"] = option(
        "feature_by_time",
        "Orientation of array files",
        group="Data",
        when=("feature_space", "matrix"),
    )
    variable: str = option(
        "X",
        "Name of the matrix in .npz and .mat files",
        group="Data",
        when=("feature_space", "matrix"),
    )
    bids_filter: str = option(
        "auto",
        "Which images of a BIDS folder",
        group="Data",
        help="Entities that the names must have, such as task-rest_ses-1+2_space-MNI152Lin_res-2; "
        "+ joins values that are all wanted.  auto: space-MNI152NLin2009cAsym_desc-preproc; of "
        "grayordinates space-fsLR_den-91k, of parcels space-fsLR.",
    )
    bids_exclude: str = option(
        "",
        "Which images of a BIDS folder to leave out",
        group="Data",
        help="Such as task-nback,ses-2_run-1: images whose names have all entities of one part.  A "
        "person without an image left counts as zeros; a site leaves people out by its own list, "
        "the owner cannot name them (sub).",
    )
    tr: float = option(0.0, "Repetition time", low=0.0, high=20.0, unit="s", group="Data")
    tr_tolerance: float = option(1e-3, "Allowed difference of TR", low=0.0, unit="s", group="Data")
    min_timepoints: int = option(100, "Fewest time points of a subject", low=3, group="Data")
    max_timepoints: int = option(
        0, "Most time points of a subject", low=0, group="Data", help="0: no limit."
    )
    drop_first_volumes: int = option(0, "Volumes to drop", low=0, high=1000, group="Data")
    smoothing_fwhm: float = option(
        0.0,
        "Smoothing",
        low=0.0,
        high=30.0,
        unit="mm",
        group="Data",
        help="Full width at half maximum of a Gaussian.  0: none.",
    )
    resample: Literal["within_space", "never", "to_mask"] = option(
        "within_space",
        "Resampling",
        group="Data",
        help="within_space: images on another grid are brought to the mask's if both are known to "
        "be of one template space (space- in the name, or the header).  to_mask: also where nobody "
        "knows.  Images known to be of another space are always refused.",
    )
    detrend: Literal["auto", "linear", "quadratic", "none"] = option(
        "auto", "Detrending", group="Data", help=BY_MODEL
    )
    high_pass: float = option(
        0.0,
        "High-pass filter",
        low=0.0,
        high=5.0,
        unit="Hz",
        group="Data",
        help="Cosines of this frequency and below are regressed out.  0: none; 0.008 is usual.",
    )
    low_pass: float = option(
        0.0,
        "Low-pass filter",
        low=0.0,
        high=5.0,
        unit="Hz",
        group="Data",
        help="Cosines above this frequency are regressed out.  0: none, which is better: smooth "
        "sources are harder to separate.",
    )
    confounds: str = option(
        "none",
        "Confounds to regress out",
        group="Data",
        help="none, motion6, motion24, motion6+wm_csf, or columns of the confound tables such as "
        "csf,framewise_displacement.",
    )
    confound_strategy: str = option(
        "none",
        "Strategy for the confounds of fMRIPrep",
        group="Data",
        help="Parts of nilearn's load_confounds, as in motion=full,wm_csf=basic,high_pass,scrub=5: "
        + ", ".join(STRATEGIES)
        + ".  Needs the extra confounds; columns of confounds are regressed out besides.",
    )
    fd_threshold: float = option(
        0.5,
        "Largest framewise displacement that scrub keeps",
        low=0.0,
        high=100.0,
        unit="mm",
        group="Data",
    )
    dvars_threshold: float = option(
        1.5, "Largest standardised DVARS that scrub keeps", low=0.0, high=1000.0, group="Data"
    )
    max_mean_fd: float = option(
        0.0,
        "Largest mean framewise displacement of a subject",
        low=0.0,
        high=100.0,
        unit="mm",
        group="Data",
        help="Whoever moved more counts as zeros.  0: no limit.",
    )
    min_minutes: float = option(
        0.0,
        "Fewest minutes of a subject",
        low=0.0,
        high=1440.0,
        unit="min",
        group="Data",
        help="After scrubbing; whoever has fewer counts as zeros.  0: no limit.",
    )
    global_signal: Literal["auto", "true", "false"] = option(
        "auto",
        "Regress out the global signal",
        group="Data",
        help="The mean of the scaled features, computed at the site; needs no table.  " + BY_MODEL,
    )
    standardize: Literal["auto", "variance", "floored", "demean", "none"] = option(
        "auto", "Scaling of each voxel", group="Data", help=f"{SCALINGS}  {BY_MODEL}"
    )

    # What a computation wants of the public basis (`cape.space.public_basis`).  Methods, not
    # settings: they follow from settings that only some computations have.

    @property
    def smooth_basis(self) -> Literal["dct", "kernel"]:
        """What ``basis=auto`` means for voxels."""
        return "dct"

    @property
    def spatial_brains(self) -> bool:
        """Whether the recipe for spatial maps of real brains applies."""
        return False

    @property
    def cleaning(self) -> Cleaning:
        brains = self.spatial_brains
        detrend = ("quadratic" if brains else "linear") if self.detrend == "auto" else self.detrend
        scaling = self.standardize
        if scaling == "auto":
            scaling = "floored" if brains else "variance"
        auto = self.global_signal == "auto"
        return Cleaning(
            detrend=detrend,
            standardize=scaling,
            global_signal=brains if auto else self.global_signal == "true",
        )

    @property
    def of_cifti(self) -> bool:
        return self.feature_space in ("grayordinates", "parcels")

    @property
    def wanted_entities(self) -> str:
        """What the names of a BIDS folder must have."""
        if self.bids_filter != "auto":
            return self.bids_filter
        return ENTITIES.get(self.feature_space, "space-MNI152NLin2009cAsym_desc-preproc")

    @property
    def needs_templates(self) -> bool:
        return self.basis == "templates"

    @property
    def said_columns(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.columns.split(",") if self.columns)

    @property
    def said_features(self) -> int:
        """D of array files as the owner said it; 0 = not said."""
        pixels = math.prod(parse_shape(self.image_shape)) if self.image_shape else 0
        return self.n_features or pixels or len(self.said_columns)

    @property
    def most_components(self) -> int:
        """Return the largest R that the settings may mean; 0 without components."""
        return int(getattr(self, "n_components", 0))

    def widest_smooth_basis(self) -> int:
        return min(LARGEST_MEASURED_BASIS, self.max_features)

    def check(self) -> None:
        """Raise ConfigError for settings that contradict each other; subclasses extend it."""
        # A run without noise keeps delta = 0, which stands for "nothing is promised".
        if self.private and not 0 < self.delta < 1:
            raise ConfigError(
                "E011", setting="delta", got=self.delta, allowed="1e-15 to 0.1", do="1e-5 is usual."
            )
        if self.zero_sum == "gaussian":
            self._check_gaussian()
        self._check_roster()
        if self.min_sites < 2 and not (self.noise == "local" and self.private):
            problem = "min_sites=1: the noise of one site alone must be all of it"
            raise ConfigError("E012", problem=problem, do="use noise=local, or more sites.")
        if self.mask.startswith("MNI152-"):
            known = [f"MNI152-{mm}mm" for mm in (10, 8, 6, 4, 3)]
            if self.mask not in known:
                raise out_of_range("mask", self.mask, ", ".join([*known, "file"]))
        elif not re.fullmatch(r"file|(mask|tpl-)[^/]*\.nii(\.gz)?", self.mask):
            # Else the owner could name somebody's image: its digest would leave before any noise.
            allowed = "MNI152-10mm, -8mm, -6mm, -4mm, -3mm, file, or a name such as mask.nii.gz or "
            raise out_of_range("mask", self.mask, allowed + "tpl-MNI152NLin6Asym_mask.nii.gz")
        if self.atlas and not self.atlas.lower().startswith("atlas"):
            # As for the mask.
            raise out_of_range("atlas", self.atlas, "a name that begins with atlas")
        if not re.fullmatch(r"[A-Za-z0-9]*", self.space):
            raise out_of_range("space", self.space, "letters and digits, as after space- in a name")
        self._check_layout()
        if 0 < self.low_pass <= self.high_pass:
            raise out_of_range("low_pass", self.low_pass, f"above high_pass = {self.high_pass}")
        # It becomes the name of a member of an archive: no path, no separator.
        if not self.variable.isidentifier():
            raise out_of_range("variable", self.variable, "a name of letters, digits and _")
        confound_columns(self.confounds)
        parse_strategy(self.confound_strategy)
        parse_entities(self.wanted_entities)
        if self.of_cifti and self.smoothing_fwhm:
            problem = f"smoothing_fwhm with feature_space={self.feature_space}"
            do = "smooth on the surface before, such as with wb_command -cifti-smoothing."
            raise ConfigError("E012", problem=problem, do=do)
        parse_exclusions(self.bids_exclude)

    def _check_layout(self) -> None:
        names = self.said_columns
        if not all(names) or len(set(names)) < len(names):
            raise out_of_range(
                "columns", self.columns[:60], "different names, such as dmn,salience"
            )
        pixels = math.prod(parse_shape(self.image_shape)) if self.image_shape else 0
        said = {"n_features": self.n_features, "image_shape": pixels, "columns": len(names)}
        said = {name: n for name, n in said.items() if n}
        if len(set(said.values())) > 1:
            problem = " and ".join(f"{name} says {n} features" for name, n in said.items())
            raise ConfigError("E012", problem=problem, do="count the features again.")

    def _check_roster(self) -> None:
        names = self.expected_names
        if not all(names) or len(set(names)) < len(names):
            allowed = "different names, such as local0,local1,local2"
            raise out_of_range("site_names", self.site_names, allowed)
        if names and self.n_sites not in (0, len(names)):
            problem = f"n_sites={self.n_sites}, and site_names has {len(names)}"
            raise ConfigError("E012", problem=problem, do="count the sites again.")

    @property
    def expected_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.site_names.split(",") if self.site_names)

    @property
    def expected_sites(self) -> int:
        """S as the owner said it; 0 = not said."""
        return self.n_sites or len(self.expected_names)

    def wrong_sites(self, sites: Sequence[str]) -> str:
        """Return what is wrong with these sites of a run; empty if they are those of the owner."""
        if self.expected_names and sorted(self.expected_names) != sorted(sites):
            return f"the sites are {', '.join(sites)}, site_names={self.site_names}"
        return self.wrong_number(len(sites))

    def wrong_number(self, n_sites: int) -> str:
        if self.expected_sites not in (0, n_sites):
            return f"{n_sites} sites joined, n_sites={self.expected_sites}"
        if n_sites < self.min_sites:
            return f"{n_sites} sites joined, min_sites={self.min_sites}"
        return ""

    def _check_gaussian(self) -> None:
        problem = ""
        if self.aggregation != "all-sites":
            problem = "zero_sum=gaussian with sites that may drop out: e_s would no longer cancel"
        elif not self.private:
            problem = "zero_sum=gaussian with private=false: every site's sum would be seen"
        elif self.noise != "correlated":
            problem = "zero_sum=gaussian with noise=local: it only hides correlated noise"
        if problem:
            raise ConfigError("E012", problem=problem, do="use zero_sum=ring.")

    def ratio(self, n_sites: int) -> int:
        # r of the Gaussian zero-sum noise; masks have none, which stands for an infinite r.
        if self.zero_sum != "gaussian":
            return 0
        return self.seed_ratio or n_sites

    def colluders(self, n_sites: int) -> int:
        # S_C: max(1, ceil(S/3) - 1) by default, the papers' number but at least one site; with one
        # site in all there is nobody to collude.
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
        """Return checked settings from a form or a file; ConfigError for unknown or wrong ones."""
        options = {f.name: f for f in dataclasses.fields(cls)}
        for name in given:
            if name not in options:
                raise ConfigError("E010", setting=name, hint=did_you_mean(name, options))
        hints = _type_hints(typing.cast(Any, cls))
        private = given.get("private")
        if private is None:
            private = options["private"].default
        # Read first: without noise there is no budget to choose, so epsilon may be missing then.
        unprotected = not coerce(options["private"], hints["private"], private)
        values: dict[str, Any] = {}
        for name, spec in options.items():
            unset = given.get(name) is None
            if spec.default is MISSING and unprotected and given.get(name) == 0:
                unset = True  # as such settings travel
            if not unset:
                values[name] = coerce(spec, hints[name], given[name])
            elif spec.default is MISSING:
                if not unprotected:
                    raise ConfigError("E013", setting=name, do="the owner chooses it.")
                values[name] = 0.0  # of a run that protects nobody: no figure to promise
        config = cls(**values)
        config.check()
        return config

    def settings(self) -> dict[str, Value]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def digest(self) -> str:
        """Return the SHA-256 of settings and package version, as 64 hex digits."""
        # With the version: the same settings may mean another computation in another release.
        text = json.dumps([type(self).__name__, VERSION, self.settings()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _type_hints(cls: Any) -> dict[str, Any]:
    # Annotations are texts that have to be evaluated, 80 of them; a process asks more than once.
    return typing.get_type_hints(cls)


def confound_columns(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return ()
    names = CONFOUND_SETS.get(text) or tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"[A-Za-z0-9_.+-]+", name) for name in names):
        raise out_of_range(
            "confounds",
            text,
            f"none, {', '.join(CONFOUND_SETS)} or names of columns",
            "separate columns by commas.",
        )
    # "motion12" would otherwise be taken for the name of a column, and found missing at every site.
    near = did_you_mean(names[0], CONFOUND_SETS) if len(names) == 1 else ""
    if near and names[0].startswith("motion"):
        raise out_of_range(
            "confounds", text, f"none, {', '.join(CONFOUND_SETS)}", near.lstrip("; ")
        )
    return tuple(dict.fromkeys(names))


def parse_strategy(text: str) -> dict[str, str]:
    """Return the parts of ``"motion=full,high_pass"`` with their values, "" for nilearn's default.

    ConfigError for parts, values or combinations that nilearn does not have.
    """
    if text in ("", "none"):
        return {}
    parts = [part.partition("=") for part in text.split(",")]
    asked = {name.strip(): value.strip() for name, _, value in parts}
    if len(asked) < len(parts):
        raise out_of_range("confound_strategy", text, "every part once")
    for name, value in asked.items():
        if name not in STRATEGIES:
            near = did_you_mean(name, STRATEGIES).lstrip("; ")
            raise out_of_range("confound_strategy", name, ", ".join(STRATEGIES), near or "correct.")
        allowed = STRATEGIES[name]
        known = value in allowed or not value or (value.isdecimal() and "a number" in allowed)
        if not known or value == "a number":
            allowed_text = ", ".join(allowed) or "no value"
            raise out_of_range("confound_strategy", f"{name}={value}", allowed_text)
    if "compcor" in asked and "high_pass" not in asked:
        # fMRIPrep takes its components from filtered data.
        raise out_of_range("confound_strategy", text, "compcor with high_pass only")
    if "n_compcor" in asked and "compcor" not in asked:
        raise out_of_range("confound_strategy", text, "n_compcor with compcor only")
    if "tedana" in asked and len(asked) > 1:
        raise out_of_range("confound_strategy", text, "tedana alone: it has tables of its own")
    return asked


def parse_entities(text: str, setting: str = "bids_filter") -> tuple[tuple[str, str], ...]:
    """Return the pairs of ``"task-rest_ses-1+2"``; ConfigError if it is not of that form.

    ``+`` joins values of one entity that are all wanted.
    """
    pairs = tuple(part.partition("-")[::2] for part in text.split("_") if part)
    alnum = re.compile(r"[^\W_]+(\+[^\W_]+)*")
    if not all(re.fullmatch(r"[a-z]+", key) and alnum.fullmatch(value) for key, value in pairs):
        raise out_of_range(setting, text, "entities such as task-rest_desc-preproc")
    if any(key == "sub" for key, _ in pairs):
        # An owner who may name a person may ask whether a site has him.
        raise out_of_range(setting, text, "entities of runs, not sub: a site's own list says who")
    return pairs


def parse_exclusions(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the parts of ``"task-nback,ses-2_run-1"``, as `parse_entities` does; ConfigError."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    return tuple(parse_entities(part, "bids_exclude") for part in parts)


def check_basis(config: Config) -> None:
    """Raise ConfigError for a basis that the feature space cannot have."""
    smooth = ("dct", "none") if config.smooth_basis == "dct" else ("kernel", "dct", "none")
    by_space = {
        "mask": smooth,
        "atlas": ("atlas", "none"),
        "matrix": smooth,
        "grayordinates": ("kernel",),
        "parcels": ("none",),
    }
    # The rules of the other separations were measured in a kernel basis, never in templates.
    templates = ("templates",) if config.smooth_basis == "dct" else ()
    if config.feature_space == "grayordinates":
        templates = ()
    allowed = ("auto", *by_space[config.feature_space], *templates)
    if config.basis not in allowed:
        raise ConfigError(
            "E011",
            setting="basis",
            got=config.basis,
            allowed=f"{', '.join(allowed)} with feature_space={config.feature_space}",
            do="parcels: feature_space=atlas; kernel: another separation than temporal.",
        )
    smooth_matrix = config.feature_space == "matrix" and config.basis in ("dct", "kernel")
    if smooth_matrix and not config.image_shape:
        do = f"a {config.basis} of a matrix needs 2-D images."
        raise ConfigError("E013", setting="image_shape", do=do)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the axes of ``"30,30"``; two whole numbers above 1, else ConfigError."""
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) != 2 or min(shape) < 2:
        raise out_of_range("image_shape", text, "two whole numbers such as 30,30")
    return shape
