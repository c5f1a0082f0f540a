"""The policy of a site: limits that the owner of the consortium cannot change.

The defaults of `SitePolicy` are the shipped policy.  Only the site's own ``site-policy.toml`` can
raise a limit; files from an owner or an aggregator can only lower it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from cape.errors import ConfigError, DataError, FoundError, PrivacyBudgetError, own_words
from cape.frozen import dataclass
from cape.privacy.accounting import display_epsilon, display_left, gdp_mu, right_guesses
from cape.privacy.cost import INFINITE, Cost
from cape.privacy.ledger import Budget
from cape.privacy.noise import NoiseSource, SecureNoise
from cape.secagg.keys import KEY_BYTES, RunSecret, seeded_secret
from cape.settings.config import Config
from cape.settings.documents import toml_value
from cape.settings.option import did_you_mean
from cape.settings.own_words import OWN_WORDS, POLICY_FILE, OwnWords, folded
from cape.site.places import SitePlaces

# Value of `ledger_file` for no ledger of all runs
NO_LEDGER = "none"
# Keys that cannot be tightened: they keep their first value
FIXED = ("simulation_seed", "dataset_id", "ledger_file")
ANY_ONE = "*"
ONLY_FORBIDS: Final = (
    "site-policy.toml in this folder may only forbid, as others may have sent it: if it is the "
    "site's own, give it with --policy, or keep it beside the folder of data."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePolicy:
    """The site's own file ``site-policy.toml``; without one, these defaults: the shipped policy."""

    min_subjects: int = 3  # fewest subjects of this site
    # Largest planned total of one run: pairs of epsilon and delta, which are compared as mu; the
    # tightest of them decides, and without one there is no limit (docs/promise.md)
    max_run: tuple[tuple[float, float], ...] = ((8.0, 1e-5),)
    max_delta: float = 1e-3  # largest delta of one run; 0 = no limit of its own
    # Smallest S_C that the plan must assume; at most S - 1
    min_assumed_colluders: int = 1
    # Most sites of a run; 0 = any.  Every site draws 1/h of the noise, so sites that an aggregator
    # invents would leave little to the real ones.
    max_sites: int = 20
    dataset_id: str = ""  # name of the data set, for `ledger_file`; empty = a digest of the data
    # File for the charges of all runs, relative to the policy; empty = in `SitePlaces.home`
    ledger_file: str = ""
    # Largest total over all runs on the same people, without end: pairs as those of `max_run`
    max_total: tuple[tuple[float, float], ...] = ((10.0, 1e-5),)
    # Days of silence after which a run that has charged yields what it still holds to a run that
    # does not fit beside it; 0 = never, people close it (`cape ledger close`)
    hold_days: int = 7
    # Amounts that other runs hold or charged are rounded up to one of so many equal steps of
    # `max_total` before a run is compared with the rest; 0 = exact
    total_steps: int = 0
    # Whether a run may see the noisy sum of this site alone (``noise=local``)
    allow_local_noise: bool = False
    # Whether keys relayed by the aggregator are trusted (``key_trust=aggregator``)
    allow_relayed_keys: bool = False
    # Whether the first key of a new site is trusted (``key_trust=first-use``)
    allow_new_sites: bool = True
    allow_computations: tuple[str, ...] = ()  # names; empty = all
    # Columns for which the site publishes the number of people per level; empty = none, since an
    # owner could otherwise count any column for free.  `ANY_ONE`, as in simulations: all
    public_counts: tuple[str, ...] = ()
    # Digests of public maps that the site sends where a run needs them (`cape validate` prints
    # them); empty = none: maps in the folder may follow from its own people.  `ANY_ONE`: all
    public_maps: tuple[str, ...] = ()
    # Fewest people of a level that are counted: fewer count as 0, and are not asked
    min_group: int = 5
    max_features: int = 0  # largest public basis; 0 = the owner's
    allow_not_private: bool = False  # whether runs with ``private=false`` may use this site's data
    # Seed of the noise, in simulations only; -1 = none, noise from the operating system
    simulation_seed: int = -1
    # Whether the content of data files may stop a run that `cape validate` would find not ready
    stop_for_data: bool = False
    # Whether a rule by which more than half of the people fail stops a run before it is charged
    stop_if_most_fail: bool = True
    # Largest number of an owner's runs on `dataset_id` that read data and have not answered; no
    # other run of that owner begins then.  Counted beside `ledger_file`; 0 = any number
    max_refusals: int = 3
    # Whether a refusal may say which number of this policy refused
    share_policy_numbers: bool = False
    # Whether files about single subjects are written into the site's output folder
    private_results: bool = False
    # Owners whose runs are answered, by the engine's ids; empty = any
    allowed_owners: tuple[str, ...] = ()
    # Digests of the software that may run here (`cape policy`); empty = any
    image_digests: tuple[str, ...] = ()
    veto: bool = False  # refuse everything
    # The site's facts about its own files (`cape.settings.own_words`); read in its own file only
    layout: str = ""
    tables: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    same_people: tuple[tuple[str, ...], ...] = ()
    different_people: tuple[tuple[str, ...], ...] = ()
    not_exclusions: tuple[str, ...] = ()
    variables: tuple[tuple[str, str, float], ...] = ()
    levels: tuple[tuple[str, str, str], ...] = ()
    as_it_is: tuple[str, ...] = ()
    decimal_commas: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> SitePolicy:
        values = _values(given)
        if values.get("ledger_file") == NO_LEDGER:
            values.setdefault("max_total", ())
        return cls(**values)._checked()  # type: ignore[arg-type]

    @classmethod
    def of_simulation(cls, **chosen: Any) -> Self:
        """Return a policy without limits, for simulated sites; `chosen` replaces keys."""
        open_to_all: dict[str, Any] = {
            "min_subjects": 1, "max_run": (), "max_delta": 0.0, "min_assumed_colluders": 0,
            "max_sites": 0, "ledger_file": NO_LEDGER, "max_total": (),
            "allow_local_noise": True, "allow_relayed_keys": True, "allow_not_private": True,
            "public_counts": (ANY_ONE,), "public_maps": (ANY_ONE,), "min_group": 1,
        }  # fmt: skip
        return cls(**(open_to_all | chosen))

    def with_mapped(self, site: str, given: Mapping[str, object]) -> SitePolicy:
        """Tighten by a mapped policy; ConfigError E266 for another seed, data set or ledger.

        Nor may it say other things of the files than the site's own: people would be counted by
        one file where the site is checked, and by another in a run.
        """
        values = _values(given)
        silent = {spec.name: spec.default for spec in dataclasses.fields(self)}
        # Another seed or ledger is neither tighter nor looser: it belongs to another site.
        for name in (*FIXED, *OWN_WORDS):
            if values.get(name, silent[name]) not in (silent[name], getattr(self, name)):
                raise ConfigError("E266", site=site, detail=f"{name} of the mapped policy")
            values.pop(name, None)
        mapped = dataclasses.replace(self, **values)  # type: ignore[arg-type]
        return self.tightened(site, mapped)._checked()

    @property
    def words(self) -> OwnWords:
        return OwnWords(**{name: getattr(self, name) for name in OWN_WORDS})

    def saying(self, words: OwnWords) -> SitePolicy:
        """Return this policy with the site's own words on its files."""
        said = {name: getattr(words, name) for name in OWN_WORDS}
        return dataclasses.replace(self, **said)

    def _checked(self) -> SitePolicy:
        if self.max_total and self.ledger_file == NO_LEDGER:
            problem = "max_total needs to know what earlier runs spent"
            raise ConfigError("E012", problem=problem, do="name a ledger_file.")
        return self

    def tightened(self, site: str, later: SitePolicy) -> SitePolicy:
        """Return this policy, as accepted in `join`, tightened by the present content of its file.

        Received files land beside it, so they never allow more.  PrivacyBudgetError if seed, data
        set or ledger differ.
        """
        values: dict[str, object] = {}
        unrelated = False
        for spec in dataclasses.fields(self):
            name, mine, theirs = spec.name, getattr(self, spec.name), getattr(later, spec.name)
            if name in OWN_WORDS:
                values[name] = mine
            elif name in FIXED:
                if mine != theirs:
                    detail = f"{FOR_SITE}{name} was changed"
                    raise PrivacyBudgetError("E154", site=site, detail=detail)
                values[name] = mine
            elif name == "hold_days":
                values[name] = mine  # no limit: a received file must not shorten it
            elif name in PAIR_KEYS:
                # All pairs hold, so the tightest suffices.
                values[name] = tuple(sorted({*mine, *theirs}, key=_mu))[:1]
            elif name in ("public_counts", "public_maps"):
                said = {one for one in (*mine, *theirs) if _says(mine, one) and _says(theirs, one)}
                values[name] = tuple(sorted(said))
            elif isinstance(mine, tuple):
                both = tuple(sorted(set(mine or theirs) & set(theirs or mine)))
                values[name], unrelated = both, unrelated or bool(mine and theirs and not both)
            elif isinstance(mine, bool):
                values[name] = (mine or theirs) if name == "veto" else (mine and theirs)
            elif name.startswith("min_"):
                values[name] = max(mine, theirs)
            else:
                values[name] = type(mine)(min(mine or theirs, theirs or mine))  # 0: no limit
        values["veto"] = bool(values["veto"]) or unrelated
        return SitePolicy(**values)  # type: ignore[arg-type]

    def check_origin(self, site: str, *, owner: str, digests: Collection[str]) -> None:
        if self.allowed_owners and owner not in self.allowed_owners:
            raise self._refused(site, "allowed_owners")
        if self.image_digests and not set(self.image_digests) & set(digests):
            raise self._refused(site, "image_digests")

    def check_settings(self, site: str, computation: str, config: Config) -> None:
        for refusal in self.refusals(site, computation, config):
            raise refusal

    def refusals(self, site: str, computation: str, config: Config) -> Iterator[PrivacyBudgetError]:
        """Yield every reason to refuse the settings of a run; `check_settings` raises the first."""
        if self.veto:
            yield self._refused(site, "veto")
        if self.allow_computations and computation not in self.allow_computations:
            yield self._refused(site, "allow_computations")
        yield from self._uncounted(site, config)
        if not config.private and not self.allow_not_private:
            yield self._refused(site, "allow_not_private", got="a run without noise")
        # Without partners there are no masks either.
        seen = (config.private and config.noise == "local") or config.min_sites < 2
        if seen and not self.allow_local_noise:
            got = "noise=local" if config.private else "min_sites=1"
            yield self._refused(site, "allow_local_noise", got=got)
        if config.private and config.key_trust == "aggregator" and not self.allow_relayed_keys:
            yield self._refused(site, "allow_relayed_keys", got="key_trust=aggregator")
        if 0 < self.max_delta < config.delta:
            yield self._refused(site, "max_delta", got=config.delta)
        asked = (config.epsilon, config.delta)
        if config.private and self.max_run and not limit_of([asked]) <= limit_of(self.max_run):
            yield self._refused(site, "max_run", got=pair_text(asked))
        # The owner's numbers; `check_run` checks those of the roster.
        if 0 <= config.assumed_colluders < self._fewest_colluders(config.expected_sites):
            yield self._refused(site, "min_assumed_colluders", got=config.assumed_colluders)
        if 0 < self.max_sites < config.expected_sites:
            yield self._refused(site, "max_sites", got=config.expected_sites)

    def check_counts(self, site: str, config: Config) -> None:
        """Raise PrivacyBudgetError (E168) unless the site lets out the counts that a run asks."""
        for refusal in self._uncounted(site, config):
            raise refusal

    def _uncounted(self, site: str, config: Config) -> Iterator[PrivacyBudgetError]:
        for column in config.counted:
            # As the site's own tables call it: what a word means here is not the owner's choice.
            here = self.words.column(column)
            if not _says([*map(folded, self.public_counts)], folded(here)):
                detail = f"{FOR_SITE}public_counts = {', '.join(self.public_counts) or 'none'}"
                if folded(here) != folded(column):
                    detail += f"; the tables here call it {here}, which is what to add"
                yield PrivacyBudgetError("E168", site=site, column=column, detail=detail)

    def publishes_maps(self, digest: str) -> bool:
        """Whether the site may send maps of this digest (`FeatureSpace.digest`)."""
        return _says(self.public_maps, digest)

    def check_run(
        self, site: str, *, colluders: int, n_basis: int, n_subjects: int, n_sites: int
    ) -> None:
        if colluders < self._fewest_colluders(n_sites):
            raise self._refused(site, "min_assumed_colluders", got=colluders)
        if 0 < self.max_features < n_basis:
            raise self._refused(site, "max_features", got=n_basis)
        if 0 < self.max_sites < n_sites:
            raise self._refused(site, "max_sites", got=n_sites)
        self.check_size(site, n_subjects)

    def _fewest_colluders(self, n_sites: int) -> int:
        # A single site has no other that could collude.
        return min(self.min_assumed_colluders, n_sites - 1) if n_sites else 0

    def check_size(self, site: str, n_subjects: int) -> None:
        # A sum over very few people reveals much about each of them, even with noise.
        if n_subjects < self.min_subjects:
            detail = f"{FOR_SITE}{n_subjects} listed subjects, min_subjects={self.min_subjects}"
            if self.share_policy_numbers:  # M_s is public, where the site says it at all
                raise self._refused(site, "min_subjects", got="fewer")
            raise DataError("E153", site=site, detail=detail)

    def over_total(self, site: str, *, asked: Cost, left: Cost) -> PrivacyBudgetError:
        # For the site alone: what is left tells of other runs on its people.
        delta = min(delta for _, delta in self.max_total)
        # What was typed, not 1.601 for an exact cost of 1.600000001
        of_asked = display_epsilon((epsilon := asked.epsilon(delta)) and round(epsilon, 6))
        told = f"this run asks epsilon {of_asked} at delta {delta:g}, left "
        told += f"{display_left(left.epsilon(delta))}; waiting does not help (cape ledger)"
        return self._refused(site, "max_total", got="more, with earlier runs", told=told)

    def _refused(
        self, site: str, name: str, *, got: object = None, told: str = ""
    ) -> PrivacyBudgetError:
        # The refusing key stays private, because the owner could infer the site's concerns.  Limits
        # of the shipped policy are public, so the error names them.
        value = getattr(self, name)
        shipped = value == getattr(SitePolicy(), name)
        limit = " and ".join(map(pair_text, value)) if name in PAIR_KEYS else value
        # As in the file, for its people; numbers and words of others are read as they are.
        said = limit if name in PAIR_KEYS else toml_value(value)
        detail = f"{name} = {said}"
        detail += "" if got is None else f", {told or f'the run has {got}'}"
        if (self.share_policy_numbers or shipped) and got is not None:
            facts = {"setting": name, "allowed": limit, "got": got}
            detail = f"{FOR_SITE}{detail}" if told else detail
            return PrivacyBudgetError("E260", site=site, detail=detail, **facts)
        return PrivacyBudgetError("E154", site=site, detail=f"{FOR_SITE}{detail}")


# Before what others do not read of a refusal
FOR_SITE: Final = "For this site alone: "


def _says(named: Sequence[str], one: str) -> bool:
    return one in named or ANY_ONE in named


# Keys that are lists of pairs of epsilon and delta; all pairs hold
PAIR_KEYS = ("max_run", "max_total")


def limit_of(pairs: Sequence[tuple[float, float]]) -> Cost:
    """Return the tightest of several (epsilon, delta) as mu^2, exact; infinite without one."""
    return Cost.of_mu(min(map(_mu, pairs))) if pairs else INFINITE


def _mu(pair: tuple[float, float]) -> float:
    return Budget.of(epsilon=pair[0], delta=pair[1]).mu


def pair_text(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.12g} at delta {pair[1]:.12g}".replace("e-0", "e-")


def promise_text(pair: tuple[float, float]) -> str:
    """Describe a limit: epsilon at delta, mu, and how often the best guesser is right."""
    mu = gdp_mu(epsilon=pair[0], delta=pair[1])
    right = f"{100 * right_guesses(mu):.1f}"
    return f"epsilon {pair_text(pair)}: mu {mu:.5g}, the best guesser is right in {right} %"


# Allowed values of a key, by the type of its default
ALLOWED: dict[type, str] = {
    tuple: "a list of texts",
    bool: "true or false",
    str: "a text",
    int: "a whole number, {least} or more, below 2^63",
    float: "a number, {least} or more, below 1",
}


def _values(given: Mapping[str, object]) -> dict[str, object]:
    defaults = {spec.name: spec.default for spec in dataclasses.fields(SitePolicy)}
    for name in given:
        if name not in defaults:
            hint = did_you_mean(name, defaults)
            raise ConfigError("E010", setting=f"site policy: {name}", hint=hint)
    return {name: _value(name, type(defaults[name]), value) for name, value in given.items()}


def _value(name: str, kind: type, value: Any) -> object:
    least = -1 if name == "simulation_seed" else 0
    if name in PAIR_KEYS:
        return _pairs_of(name, value)
    if name in OWN_WORDS:
        try:
            return getattr(OwnWords.from_mapping({name: value}), name)
        except FoundError as err:
            raise _wrong(name, value, str(err)) from None
    if kind is tuple:
        fits = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
    elif kind in (bool, str):
        fits = type(value) is kind
    else:
        # A limit of inf or nan would never refuse, and TOML allows numbers of any length.
        most = 1 if kind is float else 2**63  # `max_delta` is the one float
        fits = type(value) in (int, float) and least <= value < most
        fits = fits and (kind is float or value == int(value))
    if fits:
        return kind(value)
    raise _wrong(name, value, ALLOWED[kind].format(least=least))


def _wrong(name: str, value: object, allowed: str) -> ConfigError:
    setting, do = f"site policy: {name}", "see site-policy.toml in docs/ledger.md."
    return ConfigError("E011", setting=setting, got=value, allowed=allowed, do=do)


def _pairs_of(name: str, value: Any) -> tuple[tuple[float, float], ...]:
    try:
        pairs = tuple((epsilon, delta) for epsilon, delta in value)
        if any(type(one) not in (int, float) for pair in pairs for one in pair):
            raise TypeError
        pairs = tuple((float(epsilon), float(delta)) for epsilon, delta in pairs)
        limit_of(pairs)
    except (TypeError, ValueError, OverflowError, ConfigError):
        allowed = "a list of pairs [epsilon, delta], such as [[8, 1e-5]]; [] = no limit"
        raise _wrong(name, value, allowed) from None
    return tuple(sorted(set(pairs)))


# -- the file -------------------------------------------------------------------------------------


def new_secret(policy: SitePolicy, site: str) -> bytes:
    """Draw the secret of a run, from which the site derives all random bytes of the run."""
    # Only a site's policy can ask for seeded noise, never the settings of an owner.
    if policy.simulation_seed >= 0:
        return seeded_secret(policy.simulation_seed, site)
    return SecureNoise().token_bytes(KEY_BYTES)


def noise_of(policy: SitePolicy, secret: bytes) -> NoiseSource:
    return RunSecret(secret=secret, label="os" if policy.simulation_seed < 0 else "seeded")


def read_policy(places: SitePlaces, base: Path, given: Mapping[str, Any], site: str) -> SitePolicy:
    """Return the policy of a site: its own file, tightened by every other policy file there.

    The own file is the one that the operator names, else the mapped one: as `policy`, or among
    `data`.  Any other file beside the data (`given`: those that `policies_below` found) may only
    tighten, because an aggregator could have sent it.
    """
    mapped = _mapped(base, given)
    own = policy_path(places, base, given)
    try:
        policy = SitePolicy() if own is None else load_policy(own)
    except ConfigError as err:
        raise unusable_policy(site, err) from err
    if mapped not in (None, own):
        policy = _tightened_by(mapped, policy, site)
    for name in dict.fromkeys((POLICY_FILE, *given.get("beside", ()))):
        if base / name not in (own, mapped) and os.path.lexists(base / name):
            policy = _tightened_by(base / name, policy, site)
    return policy


def policies_below(base: Path) -> tuple[str, ...]:
    """Return the relative paths of all policy files in a site's folder."""
    found = (
        Path(folder, POLICY_FILE)
        for folder, *inside in os.walk(base)
        if any(POLICY_FILE in names for names in inside)
    )
    return tuple(sorted(path.relative_to(base).as_posix() for path in found))


def tightened_beside(policy: SitePolicy, base: Path, site: str) -> SitePolicy:
    """Return a policy tightened by all policy files in the folder of the data, at any depth.

    ConfigError E266, with what to do, or E267 as for a mapped file; none is ever skipped.
    """
    try:
        for name in policies_below(base):
            policy = _tightened_by(base / name, policy, site)
    except ConfigError as err:
        if err.code == "CAPE-E266":
            raise ConfigError("E266", site=site, detail=f"{err.detail}. {ONLY_FORBIDS}") from err
        raise
    return policy


def _tightened_by(path: Path, policy: SitePolicy, site: str) -> SitePolicy:
    try:
        given, own = _parsed(path), Path(policy.ledger_file)
        named = given.get("ledger_file")
        # A simulation's policy names its ledger from the root, its file from where it lies.
        if own.is_absolute() and isinstance(named, str) and (path.parent / named).resolve() == own:
            given["ledger_file"] = policy.ledger_file
        return policy.with_mapped(site, given)
    except ConfigError as err:
        raise unusable_policy(site, err) from err


def unusable_policy(site: str, err: ConfigError) -> ConfigError:
    """Return an error without the content of the policy, which only the site may read."""
    if err.code == "CAPE-E266":
        return err
    detail = "\n".join(filter(None, (err.public, err.detail)))
    return ConfigError("E267", site=site, detail=detail)


def policy_path(places: SitePlaces, base: Path, given: Mapping[str, Any]) -> Path | None:
    return places.policy or _mapped(base, given)


def _mapped(base: Path, given: Mapping[str, Any]) -> Path | None:
    entry = given.get("policy")
    names = entry if isinstance(entry, list) else [entry] if entry else []
    if not names:
        listed = given.get("data")
        # COINSTAC shows a member the input `policy` only if the owner's pipeline asks for one.
        texts = [n for n in listed if isinstance(n, str)] if isinstance(listed, list) else []
        names = [text for text in texts if Path(text).name == POLICY_FILE]
    return base / Path(str(names[0])).name if names else None


def load_policy(path: Path) -> SitePolicy:
    return SitePolicy.from_mapping(_parsed(path))


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:  # its reader has no limits of its own
        detail = own_words(err, "not UTF-8, or nested too deeply")
        raise ConfigError("E268", detail=f"{path.name}: {detail}") from err


def code_digest() -> str:
    """Return ``code:`` and the SHA-256 over all Python and TOML files of this package.

    It does not depend on where the package is installed.
    """
    top = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for end in ("*.py", "*.toml") for path in top.rglob(end)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(top).as_posix()} {content}\n".encode())
    return f"code:{digest.hexdigest()}"


def software(policy: SitePolicy, image: str) -> tuple[str, ...]:
    if not policy.image_digests:
        return ()
    return (code_digest(), image) if image else (code_digest(),)
