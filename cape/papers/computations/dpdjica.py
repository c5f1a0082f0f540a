"""DP-djICA of 2016 (Imtiaz et al., CISS), for comparison in simulations; it is not private.

PrivateLocalPCA with Wishart noise, PrivateGlobalPCA passed from site to site in random order,
Laplace noise in the rounds of Infomax.  The claimed privacy does not hold
(docs/computations/dpdjica.md): the label is "none" and the ledger stays empty.  Sites refuse the
run unless their own policy holds a simulation seed, which real sites do not have.
"""

import hashlib
from dataclasses import replace

import numpy as np

from cape.algorithms.estimators import Array, PlannedRelease
from cape.algorithms.unmixing import Unmixing
from cape.computations.capedjica import ITERATE, PCA, subspace
from cape.computations.ica.model import FinalState, IcaModel, arranged, unmixed
from cape.computations.ica.outcome import ica_report
from cape.errors import PrivacyBudgetError
from cape.frozen import dataclass
from cape.papers.algorithms import dpdjica as parts
from cape.papers.algorithms.covariance import scale_from_eigenvalues
from cape.papers.no_guarantee import OpenConfig, OpenPlanner, mapped
from cape.protocol import subject_views
from cape.protocol.join import by_sizes, join
from cape.protocol.model import Roster, broadcast_roster, joined, n_basis, settings_of
from cape.protocol.phases import Computation
from cape.protocol.ports import Site, Stacks
from cape.protocol.secure_sum import chunks
from cape.protocol.zero_sum import ZeroSum
from cape.settings.option import option

_NAME = "dpdjica"
WARNING = (
    "DP-djICA of 2016 protects nobody: its Wishart noise makes outputs impossible for neighbours, "
    "so at best (epsilon, 1 - exp(-epsilon)) holds, and its rounds count one time point. "
    "For comparison only."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DpDjicaConfig(OpenConfig):
    """Settings of dpdjica; `epsilon` and `delta` are not used."""

    pca_epsilon: float = option(1.0, low=1e-3, high=1e6)
    round_epsilon: float = option(1.0, low=1e-3, high=1e6)
    norm_clip: float = option(2.0, low=0.1, high=1e3, expert=True)
    n_rounds: int = option(60, low=1, high=2000, expert=True)
    learning_rate: float = option(0.5, low=1e-4, high=2.0, expert=True)

    def check(self) -> None:
        self.check_open(_NAME)


@dataclass(frozen=True, kw_only=True, slots=True)
class DpDjicaModel(IcaModel):
    """The model of a joint ICA whose subspace is the parcel."""

    subspace: parts.Parcel | None = None


def _parcel_of(config: DpDjicaConfig, n_sites: int, n_subjects: int) -> parts.WishartPca:
    return parts.WishartPca(
        n_components=config.n_components,
        n_local=config.n_local,
        n_sites=n_sites,
        n_subjects=n_subjects,
    )


def _solver(config: DpDjicaConfig, model: object = None) -> parts.LaplaceInfomax:
    return parts.LaplaceInfomax(
        n_rounds=config.n_rounds,
        learning_rate=config.learning_rate,
        round_epsilon=config.round_epsilon,
    )


def _schedules(
    config: DpDjicaConfig, n_sites: int, n_subjects: int, n_basis: int
) -> dict[str, tuple[PlannedRelease, ...]]:
    return {
        "parcel": _parcel_of(config, n_sites, n_subjects).schedule(n_basis),
        "iterate": _solver(config).schedule(config.n_components),
    }


_PLANNER = OpenPlanner(schedules=_schedules, warning=WARNING)


def _verify(site: Site, roster: Roster) -> None:
    # Only policies of simulations seed the noise: no owner or aggregator can start such a run on
    # real data.
    if site.noise.label != "seeded":
        raise PrivacyBudgetError("E256", computation=_NAME, site=site.id)
    _PLANNER.verify(site, roster)


def _parcel(config: DpDjicaConfig, model: IcaModel) -> parts.WishartPca:
    return _parcel_of(config, joined(model).n_sites, joined(model).n_subjects)


def _drawn(site: Site, purpose: str, n: int) -> Array:
    # Without a guarantee, noise on floats is enough; `cape.privacy` draws exact noise.
    source = site.noise.stream(purpose, site.transcript)
    return parts.uniforms(source.token_bytes(8 * n))


def _visited(site: Site, model: IcaModel) -> str:
    """Return the site that holds the parcel in this round."""
    roster = broadcast_roster(model)
    run = site.digest(roster)
    # The order follows from a hash of the roster: no party can choose it, all compute the same.
    order = sorted(
        hashlib.sha256(run + s.site.encode()).digest() + s.site.encode() for s in roster.sites
    )
    return order[(site.cursor.round - 1) % roster.n_sites][32:].decode()


def _second_moment(site: Site, model: IcaModel) -> Stacks:
    """Return [X X', E, E'], (1, d, 3 d + 2), at the site with the parcel; zeros elsewhere."""
    d = n_basis(model)
    # All sites but one answer zeros, so the sum over sites is the parcel.
    record = np.zeros((1, d, 3 * d + 2), dtype=np.float32)
    if _visited(site, model) == site.id:
        config = settings_of(DpDjicaConfig, site.config)
        moment = np.zeros((d, d))
        for array in chunks(subject_views.normalised(site, model)):
            for X in parts.bounded_columns(array, config.norm_clip).astype(np.float64):
                moment += X @ X.T
        std = 1.0 / np.sqrt(2.0 * config.pca_epsilon)
        noise = std * parts.gaussian(_drawn(site, "wishart", d * (2 * d + 2))).reshape(d, -1)
        record[0] = np.concatenate([moment, noise], axis=1)
    return Stacks(arrays=(record,), labels=((site.id,),))


def _scale(model: IcaModel) -> Array:
    """Return the scale (r,) that whitens the released directions, from their eigenvalues."""
    released = subspace(model)
    return scale_from_eigenvalues(released.eigenvalues[: released.V.shape[1]])


def _noisy(site: Site, model: IcaModel) -> Stacks:
    """Return [X; E], (n, 2 r, T): data with ||x|| <= 1/(2 sqrt d) above fresh Laplace noise."""
    rows = _scale(model)[:, None] * subspace(model).V.T
    stacks = mapped(site, model, "reduced", rows)
    d, r = n_basis(model), len(rows)
    # The printed sensitivity assumes this bound.
    longest = settings_of(DpDjicaConfig, site.config).norm_clip * np.sqrt(r)
    arrays = []
    for i, stack in enumerate(stacks.arrays):
        X = parts.bounded_columns(stack, longest) / np.float32(2.0 * np.sqrt(d))
        E = parts.laplace(_drawn(site, f"laplace {i}", X.size)).reshape(X.shape)
        arrays.append(np.concatenate([X, E], axis=1, dtype=np.float32))
    return Stacks(arrays=tuple(arrays), labels=stacks.labels)


def _close(config: DpDjicaConfig, model: IcaModel) -> Unmixing:
    return arranged(config, model, np.diag(_scale(model)))


def _final_state(config: DpDjicaConfig, model: IcaModel) -> FinalState:
    return unmixed(model, np.diag(_scale(model)))


# The stages of `capedjica` with other estimators
_ITERATE = replace(ITERATE, estimator=_solver, input=_noisy, close=_close)
_PARCEL = replace(
    PCA,
    name="parcel",
    state=parts.Parcel,
    estimator=_parcel,
    input=_second_moment,
    successors=(_ITERATE,),
    hand_over=None,
)

COMPUTATION = Computation(
    name=_NAME,
    config=DpDjicaConfig,
    model=DpDjicaModel,
    guarantee="none",
    simulation_only=True,
    table=(
        join(_NAME, by_sizes(_PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="parcel"),  # PublicKey -> KeyBook; probe -> Fingerprint
        _PARCEL,  # Masked -> Parcel, S times
        _ITERATE,  # Masked -> Unmixing
        ica_report(_NAME, (), _final_state),  # Done -> Closing
    ),
)
