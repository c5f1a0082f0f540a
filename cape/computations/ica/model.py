"""Public state and final state of a joint ICA, and its maps."""

from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import arrange
from cape.algorithms.estimators import Array
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Unmixing, unit_rows
from cape.algorithms.verdict import Confirmation
from cape.algorithms.whitening import Whitener
from cape.forecast.rule import ComponentKind
from cape.frozen import dataclass
from cape.protocol.model import Model, joined
from cape.protocol.report_phase import refused
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.public_basis import public_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaModel(Model):
    """States of the estimators; None before the first release of a stage."""

    subspace: Subspace | None = None  # V (d, k)
    whitener: Whitener | None = None  # U (k, k)
    unmixing: Unmixing | None = None  # W (k, k)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FinalState:
    """The final state of a run, for every model."""

    kind: ComponentKind
    V: Array  # (d, k), directions
    U: Array  # (k, k), whitener
    W: Array  # (k, k), what the solver found
    unmixing: Array  # (k, k): maps are ``B V unmixing^-1``, time courses ``unmixing V' Y``
    order: tuple[int, ...]  # signed order of the components
    status: str
    reason: str
    stability: float = 0.0  # 0 where there are no rounds
    verdict: Confirmation | None = None  # of a dithered run; components in the order of the solver
    spectrum: Subspace | None = None  # what the first release said of directions; None without one

    def maps(self, config: Config, model: Model) -> Array:
        """Return A = B V unmixing^-1, shape (D, k), in the order of the solver."""
        B = public_basis(resolve(config), joined(model).space, joined(model).n_basis)
        directions = self.V if B is None else B @ self.V
        return np.asarray(np.linalg.solve(self.unmixing.T, directions.T).T)


SOLVER_REASONS = {
    "converged": "The rows of the unmixing matrix no longer move.",
    "unconfirmed": "The rounds' answers do not confirm the spatial components that they began at.",
    "not_separated": "Nothing was separated: the rounds ended where time courses are no more "
    "independent than elsewhere.",
    "max_rounds": "All planned rounds were used and the rows of the unmixing matrix still move.",
    "not_judged": "All planned rounds were used; nothing in them tells whether sources were found.",
    **refused("the result is the last good state."),
    "diverged": "A step was not finite or blew up even when halved; the last good state is kept.",
}
NO_ROUND = "No round was released: these are whitened directions, not separated components."


def unmixed(model: IcaModel, U: Array) -> FinalState:
    """Return the final state of a run of rounds with whitener U (k, k)."""
    state, released = model.unmixing, model.subspace
    if state is None or released is None:
        raise RuntimeError("no unmixing before the first round")
    return FinalState(
        kind="temporal",
        V=released.V,
        U=U,
        W=state.W,
        # Scale sources to unit variance: the row norms of W depend on the solver.
        unmixing=np.asarray(unit_rows(state.W) @ U),
        order=state.order,
        status=state.status,
        reason=_reason(state),
        stability=state.stability,
        spectrum=released,
    )


def _reason(state: Unmixing) -> str:
    if not state.round:
        return NO_ROUND
    if state.confirmed:
        n, R = len(state.confirmed), len(state.W)
        return f"The answers to the rounds' public turns confirm {n} of {R} components."
    return SOLVER_REASONS[state.status]


def arranged(config: Config, model: IcaModel, U: Array) -> Unmixing:
    end = unmixed(model, U)
    if model.unmixing is None:
        raise RuntimeError("no unmixing before the first round")
    # The aggregator fixes signs once: rounding on another host could flip a map.
    return replace(model.unmixing, order=arrange(end.maps(config, model)))
