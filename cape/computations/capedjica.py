"""Joint temporal ICA of several sites, private for every subject: the product.

Common maps A, private time courses: X_m is about A S_m at every subject m of every site.  Three
stages of secure sums: a common subspace (pca), a common whitening, and the rounds of a solver.
The default is made for privacy: PCA from subjects' projectors in a public basis, log-Euclidean
whitening, rotations by quasi-Newton steps.  ``pca=covariance``, ``whitening=eigen`` and
``solver=infomax`` give the pipeline of Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).

Read the table at the bottom first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cape.algorithms.arrangement import apply_order, arrange
from cape.algorithms.estimators import Array, Estimator
from cape.algorithms.infomax import Infomax
from cape.algorithms.pca import CovariancePca, ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton, Regime, regime
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.algorithms.whitening import EigenWhitening, LogEuclidean, Whitener
from cape.computations import _views
from cape.computations._join import Draft, join
from cape.computations._model import Model, joined
from cape.computations._plan import Stage, make_plan, shares_of, verify_plan
from cape.computations._report import component_names, report, time_courses
from cape.computations._results import Outcome, SiteOutcome
from cape.computations._secure_sum import SecureSum
from cape.computations._zero_sum import ZeroSum, empty_ledger
from cape.config import VERSION, Config, option
from cape.errors import ConfigError, ConsortiumError
from cape.messages import Cursor, FeatureSpace, Progress, Roster
from cape.phases import Aggregator, Computation, Site, Stacks
from cape.privacy.accounting import check_delta, gdp_mu
from cape.privacy.ledger import Ledger
from cape.usefulness import (
    BRAIN_ENERGY,
    IMAGE_ENERGY,
    PCA_SHARE,
    choose_n_basis,
    energy_inside,
    g_eff,
    verdict,
)

MAX_IDENTITY = 400
"""Features that may go without a public basis whatever the budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(Config):
    """Settings of capedjica."""

    n_components: int = option(
        20,
        "Components",
        low=2,
        high=50,
        help="Rather too few: too many is the most harmful mistake under noise.",
    )
    pca: Literal["projector", "covariance"] = option(
        "projector", "PCA", help="covariance: Imtiaz et al., Alg. 3."
    )
    covariance_clip: float = option(
        0.3, "Clip norm of a subject's covariance", low=1e-3, high=1.0, help="pca=covariance only."
    )
    whitening: Literal["log-euclidean", "eigen"] = option(
        "log-euclidean", "Whitening", help="eigen: from the PCA eigenvalues, no release."
    )
    n_looks: int = option(0, "Whitening looks", low=0, high=10, help="0: chosen from G.")
    prewhiten: Literal["ar1", "none"] = option(
        "ar1", "Temporal filter before ICA", help="One number per subject; maps are unaffected."
    )
    solver: Literal["quasi-newton", "infomax"] = option(
        "quasi-newton", "Solver", help="infomax: Imtiaz et al., Alg. 4."
    )
    score: Literal["volatility", "tanh"] = option("volatility", "Score of quasi-newton")
    n_rounds: int = option(40, "Rounds of the solver", low=1, high=2000)
    shares: str = option(
        "auto", "Shares of mu^2", help="pca,whitening,iterate such as 0.4,0.3,0.3; auto: from G."
    )
    clip_schedule: str = option(
        "auto", "Clip norms of quasi-newton", help="first,last such as 0.2,0.4; auto: from G."
    )
    step_limit: float = option(
        0.0, "Largest step of quasi-newton", low=0.0, high=10.0, help="0: chosen from G."
    )
    clip: Literal["subject", "time_point"] = option(
        "subject", "What infomax clips", help="time_point: Alg. 4 to the letter."
    )
    subject_clip: float = option(2.0, "Clip norm of infomax per subject", low=0.01, high=1000.0)
    gradient_clip: float = option(30.0, "B_G of Alg. 4", low=0.01, high=1e6)
    bias_clip: float = option(math.sqrt(30.0), "B_h of Alg. 4", low=0.01, high=1e6)
    learning_rate: float = option(0.5, "Learning rate of infomax", low=1e-4, high=2.0)
    round_mu: float = option(
        0.0,
        "Fixed mu of every solver round",
        low=0.0,
        high=100.0,
        help="0: planned from epsilon.  A plan that does not fit is refused.",
    )

    def check(self) -> None:
        """Check what the settings say together."""
        Config.check(self)
        _views.check_basis(self)
        numbers("shares", self.shares, 3)
        numbers("clip_schedule", self.clip_schedule, 2)
        if self.min_timepoints < self.n_components + 2:
            raise ConfigError(
                "E011",
                setting="min_timepoints",
                got=self.min_timepoints,
                allowed=f"at least n_components + 2 = {self.n_components + 2}",
                do="raise it or lower n_components.",
            )
        if self.whitening == "eigen" and self.pca != "covariance":
            raise ConfigError(
                "E012",
                problem="whitening=eigen needs the eigenvalues of pca=covariance",
                do="eigenvalues of projectors say nothing of variances.",
            )


def numbers(name: str, text: str, count: int) -> tuple[float, ...]:
    """Return the numbers of ``"0.4,0.3,0.3"``, () for ``"auto"``; positive, else ConfigError."""
    if text == "auto":
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(v) and v > 0 for v in values):
        raise ConfigError(
            "E011",
            setting=name,
            got=text,
            allowed=f"auto, or {count} numbers above 0 separated by commas",
            do="such as " + ",".join(["0.3"] * count),
        )
    return values


# -- what each stage is, from the settings and the roster ----------------------------------------


def constants(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> Regime:
    """Return the public constants of a run: measured ones for its G, unless the owner set them."""
    found = regime(strength(config, n_sites, n_subjects) if config.private else None)
    if given := numbers("shares", config.shares, 3):
        found = replace(found, shares=(given[0], given[1], given[2]))
    if config.n_looks:
        found = replace(found, n_looks=config.n_looks)
    if clips := numbers("clip_schedule", config.clip_schedule, 2):
        found = replace(found, clips=clips)
    return replace(found, step_limit=config.step_limit) if config.step_limit else found


def strength(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> float:
    """Return G of the run, which alone decides its quality; inf without noise."""
    if not config.private:
        return math.inf
    return g_eff(
        n_subjects=n_subjects,
        mu=gdp_mu(epsilon=config.epsilon, delta=config.delta),
        shares=shares_of(config, n_sites),
        n_sites=n_sites,
    )


def make_pca(config: CapeDjicaConfig) -> Estimator[Subspace]:
    """Return the estimator of the common subspace."""
    if config.pca == "covariance":
        return CovariancePca(
            n_components=config.n_components, clip=config.covariance_clip, private=config.private
        )
    return ProjectorPca(n_components=config.n_components, private=config.private)


def make_whitening(
    config: CapeDjicaConfig, fixed: Regime, released: Subspace | None
) -> Estimator[Whitener]:
    """Return the estimator of the common whitening."""
    if config.whitening == "eigen":
        return EigenWhitening(subspace=released)
    return LogEuclidean(n_looks=fixed.n_looks, clip=fixed.whitening_clip, private=config.private)


def make_solver(config: CapeDjicaConfig, fixed: Regime) -> QuasiNewton | Infomax:
    """Return the solver."""
    if config.solver == "infomax":
        return Infomax(
            n_rounds=config.n_rounds,
            learning_rate=config.learning_rate,
            clip=config.clip,
            subject_bound=config.subject_clip,
            gradient_bound=config.gradient_clip,
            bias_bound=config.bias_clip,
            private=config.private,
        )
    return QuasiNewton(
        n_rounds=config.n_rounds,
        clips=fixed.clips,
        step_limit=fixed.step_limit,
        alpha_first=fixed.alpha_first,
        alpha_last=fixed.alpha_last,
        private=config.private,
        score=config.score,
    )


# -- the plan ------------------------------------------------------------------------------------


def stages(
    config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[Stage, ...]:
    """Return all releases of a run and how they share the budget."""
    fixed = constants(config, n_sites, n_subjects)
    R = config.n_components
    pca, whitening, iterate = fixed.shares
    return (
        Stage(phase="pca", asked=make_pca(config).schedule(n_basis), share=pca),
        Stage(
            phase="whitening",
            asked=make_whitening(config, fixed, None).schedule(R),
            share=whitening,
        ),
        Stage(
            phase="iterate",
            asked=make_solver(config, fixed).schedule(R),
            share=iterate,
            fixed_mu=config.round_mu if config.private else 0.0,
        ),
    )


def plan_run(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> Draft:
    """Return the plan of a run; ConfigError or PrivacyBudgetError if there is none."""
    config = _own(config)
    if config.private:
        check_delta(config.delta, n_subjects=n_subjects)
    if n_subjects < config.n_components:
        raise ConsortiumError("E130", got=n_subjects, allowed=config.n_components)
    g = strength(config, n_sites, n_subjects)
    d = basis_size(config, space, g)
    found = stages(config, n_sites=n_sites, n_subjects=n_subjects, n_basis=d)
    plan = make_plan(config, found, n_sites=n_sites, n_subjects=n_subjects)
    return Draft(
        plan=plan, n_basis=d, warnings=_quality(config, space, n_sites, n_subjects, d)
    )


def basis_size(config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
    """Return d: the owner's, or the best one for G; ConfigError if R does not fit it."""
    D, R = space.n_features, config.n_components
    if not _views.uses_dct(config):
        limit = max(MAX_IDENTITY, int(min(0.1 * PCA_SHARE * g * g / R, 1e9)))
        limit = min(limit, config.max_features)
        if limit < D:
            raise ConfigError(
                "E145",
                setting="features without a public basis",
                got=D,
                allowed=limit,
                do="use an atlas or basis=dct, raise epsilon, or add subjects.",
            )
        d = D
    elif config.n_basis:
        d = min(config.n_basis, D)
    else:
        energies = BRAIN_ENERGY if space.kind == "mask" else IMAGE_ENERGY
        widest = _views.widest_basis(config, space)
        d = choose_n_basis(n_components=R, g=g, limit=widest, energies=energies)
    if d > config.max_features:
        raise ConfigError(
            "E145", setting="n_basis", got=d, allowed=config.max_features, do="lower n_basis."
        )
    if d < R:
        raise ConfigError(
            "E149", got=R, allowed=f"2 to {d}", do=f"the public basis has {d} directions."
        )
    return d


def _quality(
    config: CapeDjicaConfig, space: FeatureSpace, n_sites: int, n_subjects: int, d: int
) -> tuple[str, ...]:
    """Return what the owner should know; refuse a run whose maps would mostly show noise."""
    if not config.private:
        return ("No noise is added: this run protects nobody.",)
    if not _views.uses_dct(config):
        energy = 1.0
    else:
        energy = energy_inside(d, BRAIN_ENERGY if space.kind == "mask" else IMAGE_ENERGY)
    found = verdict(
        n_subjects=n_subjects,
        n_sites=n_sites,
        shares=shares_of(config, n_sites),
        mu=gdp_mu(epsilon=config.epsilon, delta=config.delta),
        delta=config.delta,
        n_components=config.n_components,
        n_basis=d,
        energy=energy,
        revised=config.prewhiten == "ar1",
    )
    if found.usable:
        return found.warnings
    if not config.accept_low_quality:
        raise ConfigError("E150", problem=found.text.rstrip("."), do="or set accept_low_quality.")
    return (found.text, *found.warnings)


def _verify(site: Site, roster: Roster) -> None:
    config = _own(site.config)
    found = stages(
        config, n_sites=roster.n_sites, n_subjects=roster.n_subjects, n_basis=roster.n_basis
    )
    verify_plan(site, roster, found)


# -- the end of a run ----------------------------------------------------------------------------


def white_unmixing(model: Model) -> Array:
    """Return W U (k, k) with the rows of W scaled to sources of unit variance."""
    if model.unmixing is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    unmixing: Array = unit_rows(model.unmixing.W) @ model.whitener.U
    return unmixing


def maps(config: Config, model: Model) -> Array:
    """Return A = B V (W U)^-1, shape (D, k), in the order of the solver."""
    B = _views.public_basis(config, joined(model).space, joined(model).n_basis)
    V = _views.subspace(model).V
    directions = V if B is None else B @ V
    return np.asarray(np.linalg.solve(white_unmixing(model).T, directions.T).T)


def _close(config: Config, model: Model) -> Unmixing:
    """Return the last state of the solver with the signed order of its components."""
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    model = _with_whitener(config, model)
    return replace(model.unmixing, order=arrange(maps(config, model)))


def _with_whitener(config: Config, model: Model) -> Model:
    """Return the model with the whitener that needed no release."""
    if model.whitener is not None:
        return model
    return replace(model, whitener=WHITENING.current(config, model))


def _write_site(site: Site, model: Model) -> SiteOutcome:
    model = _with_whitener(site.config, model)
    unmixing = white_unmixing(model)
    order = model.unmixing.order if model.unmixing else ()
    return SiteOutcome(
        site=site.id,
        outcome_status=model.unmixing.status if model.unmixing else "",
        names=component_names(len(unmixing)),
        time_courses=time_courses(site, model, unmixing, order),
        ledger=site.ledger or empty_ledger(site.config),
    )


NO_GAP = "No spectral gap: n_components may be too large or the budget too small."
REASONS = {
    "converged": "The rows of the unmixing matrix no longer move.",
    "max_rounds": "All planned rounds were used and the rows of the unmixing matrix still move.",
    "budget_exhausted": "A site refused the next release; the result is the last good state.",
    "diverged": "A step was not finite or blew up even when halved; the last good state is kept.",
}


def _outcome(party: Aggregator, model: Model) -> Outcome:
    model = _with_whitener(party.config, model)
    roster, subspace, state = joined(model), _views.subspace(model), model.unmixing
    if state is None or model.whitener is None:
        raise RuntimeError("no unmixing before the first round")
    order = state.order
    unmixing = white_unmixing(model)
    B = _views.public_basis(party.config, roster.space, roster.n_basis)
    basis_rows = subspace.V.T if B is None else subspace.V.T @ B.T
    private = party.config.private and not roster.seeded
    warnings = list(roster.warnings)
    if subspace.status == "no_gap":
        warnings.append(NO_GAP)
    return Outcome(
        computation=COMPUTATION.name,
        version=VERSION,
        run=party.digest(roster)[:16].hex(),
        config_digest=party.config.digest(),
        settings=party.config.settings(),
        label="dp" if private else "none",
        status=state.status,
        reason=REASONS[state.status],
        stability=state.stability,
        roster=roster,
        fingerprint=model.fingerprint,
        ledger=party.ledger or empty_ledger(party.config),
        V=subspace.V,
        U=model.whitener.U,
        W=apply_order(order, state.W, 0),
        W_total=apply_order(order, unmixing @ basis_rows, 0),
        A=apply_order(order, maps(party.config, model), 1),
        eigenvalues=subspace.eigenvalues,
        edge=subspace.edge,
        gap_ratio=subspace.gap_ratio,
        rank_status=subspace.status,
        trace=model.trace,
        rounds_planned=sum(event.phase == "iterate" for event in roster.plan),
        warnings=tuple(warnings),
    )


def _progress(config: Config, model: Model, ledger: Ledger | None, cursor: Cursor) -> Progress:
    """Return the public line of a broadcast: where the run is and what it has spent."""
    planned = model.roster.plan if model.roster else ()
    rounds = sum(event.phase == cursor.phase for event in planned) or 1
    budgeted = config.private and ledger is not None and ledger.budget is not None
    last = model.trace[-1] if model.trace else None
    return Progress(
        phase=cursor.phase,
        round=cursor.round,
        rounds=rounds,
        exchange=cursor.seq,
        exchanges=4 + len(planned),
        mu=(ledger.mu_spent() or 0.0) if budgeted and ledger else 0.0,
        mu_budget=ledger.budget.mu if budgeted and ledger and ledger.budget else 0.0,
        epsilon=(ledger.epsilon_spent() or 0.0) if budgeted and ledger else 0.0,
        step=last.step_norm if last else 0.0,
        stability=last.stability if last else 0.0,
    )


def _own(config: Config) -> CapeDjicaConfig:
    if not isinstance(config, CapeDjicaConfig):
        raise TypeError(f"settings of {type(config).__name__} given to capedjica")
    return config


# -- the protocol --------------------------------------------------------------------------------


def _fixed(config: Config, model: Model) -> Regime:
    roster = joined(model)
    return constants(_own(config), roster.n_sites, roster.n_subjects)


def _pca(config: Config, model: Model) -> Estimator[Any]:
    return make_pca(_own(config))


def _whitening(config: Config, model: Model) -> Estimator[Any]:
    return make_whitening(_own(config), _fixed(config, model), model.subspace)


def _solver(config: Config, model: Model) -> Estimator[Any]:
    return make_solver(_own(config), _fixed(config, model))


def _d(model: Model) -> int:
    return joined(model).n_basis


def _k(model: Model) -> int:
    return int(_views.subspace(model).V.shape[1])


def _reduced(site: Site, model: Model) -> Stacks:
    return _views.reduced(site, model, prewhiten=_own(site.config).prewhiten)


def _whitened(site: Site, model: Model) -> Stacks:
    U = WHITENING.current(site.config, model).U
    return _views.whitened(site, model, U, prewhiten=_own(site.config).prewhiten)


ITERATE = SecureSum(
    name="iterate", state=Unmixing, into="unmixing",
    estimator=_solver, rows=_k, sees=_whitened, close=_close,
)  # fmt: skip
WHITENING = SecureSum(
    name="whitening", state=Whitener, into="whitener",
    estimator=_whitening, rows=_k, sees=_reduced, later=(ITERATE,),
)  # fmt: skip
PCA = SecureSum(
    name="pca", state=Subspace, into="subspace",
    estimator=_pca, rows=_d, sees=_views.raw, later=(WHITENING, ITERATE),
)  # fmt: skip

COMPUTATION = Computation(
    name="capedjica",
    cite="Imtiaz et al., Alg. 1-4; docs/deviations.md",
    config=CapeDjicaConfig,
    model=Model,
    start=Model,
    progress=_progress,
    table=(
        join("capedjica", plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="pca"),                  # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,                                           # Masked -> Subspace
        WHITENING,                                     # Masked -> Whitener
        ITERATE,                                       # Masked -> Unmixing
        report(_write_site, _outcome),                 # Done -> Closing
    ),
)  # fmt: skip
