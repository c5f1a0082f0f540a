"""DP-djICA of 2016 (Imtiaz et al., CISS), for comparison in simulations; it is not private.

PrivateLocalPCA with Wishart noise, PrivateGlobalPCA passed from site to site in random order,
Laplace noise in the rounds of Infomax.  What is claimed does not hold (see the page of this
computation in docs/), so the label is "none", the ledger stays empty, and every site refuses it
unless its own policy holds a simulation seed, which real sites do not have.
"""

from __future__ import annotations

import hashlib

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import scale_from_eigenvalues
from cape.computations.capedjica.stages import n_directions, subspace
from cape.computations.ica.model import IcaModel, arranged, unmixed
from cape.computations.ica.outcome import consortium_outcome, site_outcome
from cape.errors import ConfigError, ConsortiumError
from cape.frozen import dataclass
from cape.papers.algorithms.dpdjica import (
    LaplaceInfomax,
    Parcel,
    WishartPca,
    bounded_columns,
    gaussian,
    laplace,
    uniforms,
)
from cape.papers.no_guarantee import check_n_local, check_not_private, refuse_real_data
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, broadcast_roster, joined, n_basis, progress, settings_of
from cape.protocol.outcome import IcaOutcome, SiteOutcome
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage, make_plan, verify_basis, verify_plan
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.report_phase import report
from cape.protocol.secure_sum import SecureSum, chunks
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import option
from cape.settings.resolved import check_basis, resolve
from cape.space.public_basis import widest_basis

_NAME = "dpdjica"
WARNING = (
    "DP-djICA of 2016 protects nobody: its Wishart noise makes outputs impossible for neighbours, "
    "so at best (epsilon, 1 - exp(-epsilon)) holds, and its rounds count one time point. "
    "For comparison only."
)

# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DpDjicaConfig(Config):
    """Settings of dpdjica; `epsilon` and `delta` mean nothing here."""

    n_components: int = option(20, low=2, high=50)
    n_local: int = option(20, low=2, high=200)
    pca_epsilon: float = option(1.0, low=1e-3, high=1e6)
    round_epsilon: float = option(1.0, low=1e-3, high=1e6)
    norm_clip: float = option(2.0, low=0.1, high=1e3, expert=True)
    n_rounds: int = option(60, low=1, high=2000)
    learning_rate: float = option(0.5, low=1e-4, high=2.0, expert=True)
    private: bool = option(False, group="Privacy")

    def check(self) -> None:
        Config.check(self)
        check_not_private(_NAME, self)
        check_basis(self)
        check_n_local(self.n_local, self.n_components)


def dpdjica_settings(config: Config) -> DpDjicaConfig:
    return settings_of(DpDjicaConfig, config)


@dataclass(frozen=True, kw_only=True, slots=True)
class DpDjicaModel(IcaModel):
    """As of every joint ICA; the subspace carries the parcel."""

    subspace: Parcel | None = None


# -- what is summed ------------------------------------------------------------------------------


def parcel_of(config: Config, n_sites: int, n_subjects: int) -> WishartPca:
    settings = dpdjica_settings(config)
    return WishartPca(
        n_components=settings.n_components,
        n_local=settings.n_local,
        n_sites=n_sites,
        n_subjects=n_subjects,
    )


def _solver_of(config: Config, model: object = None) -> LaplaceInfomax:
    del model
    settings = dpdjica_settings(config)
    return LaplaceInfomax(
        n_rounds=settings.n_rounds,
        learning_rate=settings.learning_rate,
        round_epsilon=settings.round_epsilon,
    )


def _stages(
    config: Config, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    parcel = parcel_of(config, n_sites, n_subjects)
    rounds = _solver_of(config).schedule(dpdjica_settings(config).n_components)
    return (
        PlannedStage(phase="parcel", releases=parcel.schedule(n_basis), mu2_weight=1.0),
        PlannedStage(phase="iterate", releases=rounds, mu2_weight=1.0),
    )


def _full_width(config: Config, space: FeatureSpace) -> int:
    d = widest_basis(resolve(config), space)
    R = dpdjica_settings(config).n_components
    if not R <= d <= config.max_features:
        raise ConfigError(
            "E145",
            setting="features",
            got=d,
            allowed=f"{R} to {config.max_features}",
            do="set n_basis.",
        )
    return d


def _plan_run(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    if n_subjects < dpdjica_settings(config).n_components:
        raise ConsortiumError("E130", got=n_subjects, allowed=dpdjica_settings(config).n_components)
    d = _full_width(config, space)
    releases = make_plan(
        config, _stages(config, n_sites, n_subjects, d), n_sites=n_sites, n_subjects=n_subjects
    )
    return RunPlan(releases=releases, n_basis=d, warnings=(WARNING,))


def _verify(site: Site, roster: Roster) -> None:
    refuse_real_data(_NAME, site)
    d = _full_width(site.config, roster.space)
    verify_basis(site, roster, d)
    verify_plan(site, roster, _stages(site.config, roster.n_sites, roster.n_subjects, d))


def _parcel(config: Config, model: DpDjicaModel) -> WishartPca:
    return parcel_of(config, joined(model).n_sites, joined(model).n_subjects)


# -- what a site answers from --------------------------------------------------------------------


def drawn(site: Site, purpose: str, n: int) -> Array:
    # Noise on floats does for what guarantees nothing anyway; that of `privacy` is exact.
    source = site.noise.stream(purpose, site.transcript)
    return uniforms(source.token_bytes(8 * n))


def visited(site: Site, model: DpDjicaModel) -> str:
    """Return the site that has the parcel in this round: a random order, the same for all."""
    roster = broadcast_roster(model)
    run = site.digest(roster)
    # By a hash of the roster: nobody can choose a place, and every party computes the same.
    order = sorted(
        hashlib.sha256(run + s.site.encode()).digest() + s.site.encode() for s in roster.sites
    )
    return order[(site.cursor.round - 1) % roster.n_sites][32:].decode()


def _second_moment(site: Site, model: DpDjicaModel) -> Stacks:
    """Return [X X', E, E'], (1, d, 3 d + 2), at the site with the parcel; zeros elsewhere."""
    d = n_basis(model)
    # The sum over sites carries the parcel: all but one of them answer zeros.
    record = np.zeros((1, d, 3 * d + 2), dtype=np.float32)
    if visited(site, model) == site.id:
        moment = np.zeros((d, d))
        for array in chunks(subject_views.raw(site, model)):
            for X in bounded_columns(array, dpdjica_settings(site.config).norm_clip).astype(
                np.float64
            ):
                moment += X @ X.T
        std = 1.0 / np.sqrt(2.0 * dpdjica_settings(site.config).pca_epsilon)
        n = d * (2 * d + 2)
        noise = std * gaussian(drawn(site, "wishart", n)).reshape(d, -1)
        record[0] = np.concatenate([moment, noise], axis=1)
    return Stacks(arrays=(record,), labels=((site.id,),))


def reduction(model: DpDjicaModel) -> Array:
    """Return U V' (r, d): the released subspace, whitened by what was released with it."""
    V = subspace(model).V
    return scale_from_eigenvalues(subspace(model).eigenvalues[: V.shape[1]])[:, None] * V.T


def _noisy(site: Site, model: DpDjicaModel) -> Stacks:
    """Return [X; E], (n, 2 r, T): data with ||x|| <= 1/(2 sqrt d), fresh Laplace noise below."""
    rows = reduction(model)
    stacks = subject_views.mapped(site, model, "reduced", rows)
    d, r = n_basis(model), len(rows)
    # ||x|| <= 1/(2 sqrt d) is the bound for which the printed sensitivity is stated.
    longest = dpdjica_settings(site.config).norm_clip * np.sqrt(r)
    arrays = []
    for i, stack in enumerate(stacks.arrays):
        X = bounded_columns(stack, longest) / np.float32(2.0 * np.sqrt(d))
        E = laplace(drawn(site, f"laplace {i}", X.size)).reshape(X.shape)
        arrays.append(np.concatenate([X, E], axis=1, dtype=np.float32))
    return Stacks(arrays=tuple(arrays), labels=stacks.labels)


# -- the protocol --------------------------------------------------------------------------------


def _whitener(model: DpDjicaModel) -> Array:
    released = subspace(model)
    return np.diag(scale_from_eigenvalues(released.eigenvalues[: released.V.shape[1]]))


def _close(config: Config, model: DpDjicaModel) -> Unmixing:
    return arranged(config, model, _whitener(model))


def _write_site(site: Site, model: DpDjicaModel) -> SiteOutcome:
    return site_outcome(_NAME, site, model, unmixed(model, _whitener(model)))


def _outcome(party: Aggregator, model: DpDjicaModel) -> IcaOutcome:
    end = unmixed(model, _whitener(model))
    return consortium_outcome(_NAME, party, model, end, label="none")


_ITERATE = SecureSum(
    name="iterate",
    state=Unmixing,
    model_field="unmixing",
    estimator=_solver_of,
    rows=n_directions,
    input=_noisy,
    close=_close,
)
PARCEL = SecureSum(
    name="parcel",
    state=Parcel,
    model_field="subspace",
    may_reduce_rank=True,
    estimator=_parcel,
    rows=n_basis,
    input=_second_moment,
    successors=(_ITERATE,),
)

COMPUTATION = Computation(
    name=_NAME,
    cite="Imtiaz et al., CISS 2016, Alg. 1-3",
    config=DpDjicaConfig,
    model=DpDjicaModel,
    start=DpDjicaModel,
    progress=progress,
    guarantee="none",
    simulation_only=True,
    table=(
        join(_NAME, _plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="parcel"),  # PublicKey -> KeyBook; probe -> Fingerprint
        PARCEL,  # Masked -> Parcel, S times
        _ITERATE,  # Masked -> Unmixing
        report(_write_site, _outcome),  # Done -> Closing
    ),
)
