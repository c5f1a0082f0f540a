"""One sum over the sites that remain, in three phases (``aggregation=secagg``).

``X`` brings the masked vectors and names the survivors, ``X.consistency`` their signatures on that
list, ``X.unmask`` the shares that open the sum over the survivors, and nothing else.  Keys come
from `cape.protocol.secagg_stages`, the mathematics from `cape.secagg.stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cape.errors import PrivacyBudgetError
from cape.frozen import dataclass
from cape.protocol.messages import (
    Masked,
    MaskShares,
    RingVector,
    Survivors,
    SurvivorSignature,
    SurvivorSignatures,
)
from cape.protocol.model import Model, attendance
from cape.protocol.phases import AnyPhase, Phase, any_form
from cape.protocol.ports import Aggregator, Site
from cape.protocol.secagg_stages import SECRET, drop_outs, keep, kept, label_of, ready, table_of
from cape.secagg import aggregator_stages, keys, messages, site_stages, stages
from cape.secagg.aggregator_stages import PendingSum, SurvivorSum

PENDING = "pending"


def hide(site: Site, model: Model, noisy: npt.NDArray[np.int64], field: str) -> RingVector:
    """Return x + g under fresh masks of the next key set, uniform without the others' shares."""
    after, message = site_stages.mask_input(
        ready(site, model),
        noisy.view(np.uint64),
        label=label_of(site, field, noisy.size),
        participants=drop_outs(model).asked,
    )
    keep(site, SECRET, after)
    return message.masked


M = TypeVar("M", bound=Model)


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppableSum(Generic[M]):
    """Three phases of a table: one modular sum over the sites that remain.

    Attributes
    ----------
    name, field : str
        Of the first phase, and of the masked vector.
    broadcast : type
        Of the result.
    answer : callable
        ``answer(site, model)``: the masked vector (made with `hide`).
    size : callable
        ``size(party, model)``: its length; where the aggregator charges the release.
    bound : callable
        ``bound(party, model)``: largest size of an entry of the true sum.
    finish : callable
        ``finish(party, total, model)``: the result, and the phase to open next.
    absorb, check : callable
        As in `Phase`.
    then : tuple of str
        What may open after the last phase.
    """

    name: str
    field: str
    broadcast: type
    answer: Callable[[Site, M], Masked]
    size: Callable[[Aggregator, M], int]
    bound: Callable[[Aggregator, M], int]
    finish: Callable[[Aggregator, SurvivorSum, M], tuple[Any, str | None]]
    absorb: Callable[[M, Any], M]
    then: tuple[str, ...]
    check: Callable[[M, Any], None] = any_form

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return the phases."""
        return (
            Phase(
                name=self.name,
                reply=Masked,
                broadcast=Survivors,
                answer=self.answer,
                combine=self._collect,
                absorb=_absorb_survivors,
                then=(f"{self.name}.consistency",),
                attendance=attendance,
            ),
            Phase(
                name=f"{self.name}.consistency",
                reply=SurvivorSignature,
                broadcast=SurvivorSignatures,
                answer=_sign,
                combine=self._check,
                absorb=_absorb_signatures,
                then=(f"{self.name}.unmask",),
                attendance=attendance,
            ),
            Phase(
                name=f"{self.name}.unmask",
                reply=MaskShares,
                broadcast=self.broadcast,
                answer=_open,
                combine=self._finish,
                absorb=self._absorb,
                then=self.then,
                attendance=attendance,
                check=self.check,
            ),
        )

    def _collect(
        self, party: Aggregator, replies: Mapping[str, Masked], model: M
    ) -> tuple[Survivors, str | None]:
        """Sum what came; a site that refuses the release is one that dropped out."""
        table, left = table_of(party, model), drop_outs(model)
        refusing = [site for site, reply in replies.items() if reply.refused]
        if refusing and len(replies) - len(refusing) < table.setup.threshold:
            raise PrivacyBudgetError("E154", site=refusing[0])
        label = label_of(party, self.field, self.size(party, model))
        exchange = stages.release_id(
            table.setup,
            table.roster,
            key_set=left.releases,
            label=label,
            participants=left.asked,
        )
        pending, listed = aggregator_stages.collect_masked(
            table,
            [
                messages.MaskedInput(site=site, exchange=exchange, masked=reply.total)
                for site, reply in replies.items()
                if not reply.refused
            ],
            key_set=left.releases,
            label=label,
            participants=left.asked,
        )
        keep(party, PENDING, pending)
        return Survivors(sites=listed.survivors), f"{self.name}.consistency"

    def _check(
        self, party: Aggregator, replies: Mapping[str, SurvivorSignature], model: M
    ) -> tuple[SurvivorSignatures, str | None]:
        del model
        pending = kept(party, PENDING, PendingSum)
        signed, book = aggregator_stages.collect_signatures(
            pending,
            [
                messages.SurvivorSignature(
                    site=site, exchange=pending.exchange, signature=reply.signature
                )
                for site, reply in replies.items()
            ],
        )
        keep(party, PENDING, signed)
        return SurvivorSignatures(signatures=book.signatures), f"{self.name}.unmask"

    def _finish(
        self, party: Aggregator, replies: Mapping[str, MaskShares], model: M
    ) -> tuple[Any, str | None]:
        pending = kept(party, PENDING, PendingSum)
        total = aggregator_stages.unmask_sum(
            pending,
            [
                messages.UnmaskShares(
                    site=site,
                    exchange=pending.exchange,
                    self_masks=reply.self_masks,
                    mask_keys=reply.mask_keys,
                )
                for site, reply in replies.items()
            ],
            bound=self.bound(party, model),
        )
        party.keep(PENDING, b"")
        return self.finish(party, total, model)

    def _absorb(self, model: M, result: Any) -> M:
        left = drop_outs(model)
        after = replace(left, releases=left.releases + 1, participants=(), signatures=None)
        return self.absorb(replace(model, drop_outs=after), result)


def _absorb_survivors(model: Model, listed: Survivors) -> Model:
    left = drop_outs(model)
    after = replace(
        left,
        asked=listed.sites,
        participants=left.asked,
        survivors=listed.sites,
        shares=None,
    )
    return replace(model, drop_outs=after)


def _sign(site: Site, model: Model) -> SurvivorSignature:
    state = kept(site, SECRET, site_stages.ReadySite)
    listed = messages.SurvivorList(exchange=_exchange(state), survivors=drop_outs(model).survivors)
    after, message = site_stages.sign_survivors(state, listed)
    keep(site, SECRET, after)
    return SurvivorSignature(signature=message.signature)


def _absorb_signatures(model: Model, book: SurvivorSignatures) -> Model:
    asked = tuple(keys.site_order(book.signatures))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked, signatures=book))


def _open(site: Site, model: Model) -> MaskShares:
    state = kept(site, SECRET, site_stages.ReadySite)
    signed = drop_outs(model).signatures
    book = messages.SignatureBook(
        exchange=_exchange(state), signatures=signed.signatures if signed else {}
    )
    after, message = site_stages.unmask(state, book)
    keep(site, SECRET, after)
    return MaskShares(self_masks=message.self_masks, mask_keys=message.mask_keys)


def _exchange(state: site_stages.ReadySite) -> bytes:
    """Return the exchange of the release under way: signatures are bound to it."""
    return state.release.exchange if state.release is not None else b""
