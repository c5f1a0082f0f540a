"""Decentralized joint ICA of Baker et al. (2015, 2019), without privacy, for comparison.

Local PCA at every site, global PCA of the stacked local ones, one sphere for all sites, then
Infomax on sums over sites, block by block (as in the papers) or on all columns in every round.  The
sums carry no noise: the label is "none", and a site's policy must allow it (``allow_not_private``).
A site is the record; see `cape.papers.algorithms.djica`.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from cape.algorithms.estimators import PlannedRelease
from cape.algorithms.unmixing import Unmixing
from cape.computations.capedjica import ITERATE, PCA, WHITENING, subspace
from cape.computations.ica.model import FinalState, IcaModel, arranged, unmixed
from cape.computations.ica.outcome import ica_report
from cape.frozen import dataclass
from cape.papers.algorithms.djica import (
    DjicaInfomax,
    EpochState,
    GlobalSphere,
    Sphere,
    StackedPca,
    default_block,
    default_rate,
)
from cape.papers.no_guarantee import OpenConfig, OpenPlanner, mapped
from cape.protocol import subject_views
from cape.protocol.join import by_sizes, join
from cape.protocol.model import joined, settings_of
from cape.protocol.phases import Computation
from cape.protocol.plan import PROTECTS_NOBODY
from cape.protocol.ports import Site, Stacks, View
from cape.protocol.secure_sum import chunks
from cape.protocol.zero_sum import ZeroSum
from cape.settings.option import option

_NAME = "djica"
# Rate of the first mean gradient on doubled white data; later rates follow from the gradients.
FULL_BATCH_RATE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class DjicaConfig(OpenConfig):
    """Settings of djica."""

    n_local: int = option(100, low=2, high=1447)
    batch: Literal["full", "block"] = option("full", expert=True)
    block: int = option(0, low=0, high=10**6, expert=True)
    n_rounds: int = option(400, low=1, high=9000)
    learning_rate: float = option(0.0, low=0.0, high=2.0, expert=True)
    anneal: bool = option(True, expert=True)
    tolerance: float = option(1e-6, low=0.0, high=1.0, expert=True)
    standardize: Literal["auto", "variance", "floored", "demean"] = option("auto", group="Data")

    def check(self) -> None:
        self.check_open(_NAME)


@dataclass(frozen=True, kw_only=True, slots=True)
class DjicaModel(IcaModel):
    """The model of a joint ICA with djICA's sphere and solver."""

    whitener: Sphere | None = None
    unmixing: EpochState | None = None


def _pca_of(config: DjicaConfig, n_subjects: int) -> StackedPca:
    return StackedPca(
        n_components=config.n_components, n_local=config.n_local, n_subjects=n_subjects
    )


def _solver_of(config: DjicaConfig, n_subjects: int, n_columns: int) -> DjicaInfomax:
    block = 0
    rate = config.learning_rate or FULL_BATCH_RATE
    if config.batch == "block":
        # As in Baker et al.; sums over blocks need a smaller rate.
        block = min(config.block or default_block(n_columns), max(n_columns, 1))
        rate = config.learning_rate or default_rate(config.n_components)
    return DjicaInfomax(
        n_rounds=config.n_rounds,
        learning_rate=rate,
        block=block,
        n_columns=n_columns,
        n_subjects=n_subjects,
        anneal=config.anneal,
        tolerance=config.tolerance,
    )


def _schedules(
    config: DjicaConfig, n_sites: int, n_subjects: int, n_basis: int
) -> dict[str, tuple[PlannedRelease, ...]]:
    R = config.n_components
    return {
        "pca": _pca_of(config, n_subjects).schedule(n_basis),
        "sphere": GlobalSphere(n_subjects=n_subjects, n_sites=n_sites).schedule(R),
        "iterate": _solver_of(config, n_subjects, 0).schedule(R),
    }


def _pca(config: DjicaConfig, model: IcaModel) -> StackedPca:
    return _pca_of(config, joined(model).n_subjects)


def _sphere(config: DjicaConfig, model: IcaModel) -> GlobalSphere:
    return GlobalSphere(n_subjects=joined(model).n_subjects, n_sites=joined(model).n_sites)


def _solver(config: DjicaConfig, model: IcaModel) -> DjicaInfomax:
    # The sphere released the mean number of columns, which sets the size of a block.
    return _solver_of(config, joined(model).n_subjects, _SPHERE.released(model).n_columns)


def _as_one_record(site: Site, subjects: Stacks | View, n_subjects: int | None) -> Stacks:
    """Return all subjects (n, rows, T) of a site as one record (1, rows, N_s), side by side."""
    # With M, columns of a subject are scaled by 1/sqrt(T_m M): X X' is then its part of the mean
    # second moment of all subjects.  With None they are not scaled.
    parts = []
    for array in chunks(subjects):
        scale = 1.0 if n_subjects is None else 1.0 / np.sqrt(max(array.shape[2], 1) * n_subjects)
        # A float64 factor would double the memory.
        parts.append((array * np.float32(scale)).swapaxes(0, 1).reshape(array.shape[1], -1))
    columns = np.ascontiguousarray(np.concatenate(parts, axis=1))
    # A site without usable subjects answers as one column of zeros.
    if columns.shape[1] == 0:
        columns = np.zeros((len(columns), 1), dtype=np.float32)
    return Stacks(arrays=(columns[np.newaxis],), labels=((site.id,),))


def _columns(site: Site, model: IcaModel) -> Stacks:
    return _as_one_record(site, subject_views.normalised(site, model), joined(model).n_subjects)


def _reduced(site: Site, model: IcaModel) -> Stacks:
    subjects = mapped(site, model, "reduced", subspace(model).V.T)
    return _as_one_record(site, subjects, joined(model).n_subjects)


def _whitened(site: Site, model: IcaModel) -> Stacks:
    """Return white data, which the solver doubles: of each subject, or of the site side by side."""
    rows = _SPHERE.released(model).U @ subspace(model).V.T
    white = mapped(site, model, "whitened", rows)
    # The record is a subject for full batches, a site for blocks.
    if settings_of(DjicaConfig, site.config).batch == "full":
        return white
    return _as_one_record(site, white, None)


def _close(config: DjicaConfig, model: IcaModel) -> Unmixing:
    return arranged(config, model, _SPHERE.released(model).U)


def _final_state(config: DjicaConfig, model: IcaModel) -> FinalState:
    return unmixed(model, _SPHERE.released(model).U)


# The stages of `capedjica` with other estimators
_ITERATE = replace(ITERATE, state=EpochState, estimator=_solver, input=_whitened, close=_close)
_SPHERE = replace(
    WHITENING,
    name="sphere",
    state=Sphere,
    estimator=_sphere,
    input=_reduced,
    successors=(_ITERATE,),
    hand_over=None,
)
_PCA = replace(PCA, estimator=_pca, input=_columns, successors=(_SPHERE, _ITERATE), hand_over=None)
_PLANNER = OpenPlanner(schedules=_schedules, warning=PROTECTS_NOBODY)

COMPUTATION = Computation(
    name=_NAME,
    config=DjicaConfig,
    model=DjicaModel,
    guarantee="none",
    table=(
        join(_NAME, by_sizes(_PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_PLANNER.verify, then="pca"),  # PublicKey -> KeyBook; probe -> Fingerprint
        _PCA,  # Masked -> Subspace
        _SPHERE,  # Masked -> Sphere
        _ITERATE,  # Masked -> EpochState
        ica_report(_NAME, (), _final_state),  # Done -> Closing
    ),
)
