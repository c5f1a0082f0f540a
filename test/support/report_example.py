"""An invented result for the tests of the report; loaded by path, since test/ is no package."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.spatial import Sparseness
from cape.algorithms.verdict import Confirmation, judge_run
from cape.counting import CountedPeople
from cape.data.space import MASKS
from cape.privacy.cost import Event
from cape.privacy.ledger import Budget, Ledger, split_mu
from cape.privacy.mechanisms import plan_event, plan_event_without_noise
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, RosterEntry, RoundRecord
from cape.protocol.outcome import IcaOutcome, SiteOutcome, SpatialSet
from cape.report import files
from cape.report.consortium import results_of
from cape.report.private_folder import Check, PrivateSummary, SubjectFacts
from cape.report.results import ClaimFigures, LeftRightFigures, MapResults

SITES = {"local0": 300, "local1": 212, "local2": 512}
DELTA = 1e-5


def brain() -> FeatureSpace:
    """Return the bundled mask of 10 mm, in MNI space."""
    image = files.load_image(MASKS / "MNI152-10mm.nii.gz")
    inside = np.asarray(image.dataobj) > 0
    return FeatureSpace.of_labels(
        "mask", inside.astype(np.int32), np.asarray(image.affine), "MNI152"
    )


def mask_space(edge: int = 6, *, atlas: bool = False) -> FeatureSpace:
    """Return a round mask in a cube of `edge` voxels of 8 mm, or an atlas of octants."""
    axes = np.indices((edge, edge + 1, edge)).astype(float)
    centre = np.array(axes.shape[1:]).reshape(3, 1, 1, 1) / 2 - 0.5
    inside = ((axes - centre) ** 2).sum(0) <= (edge / 2) ** 2
    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    affine[:3, 3] = [-20.0, -50.0, -10.0]
    if atlas:
        octant = (axes > centre).astype(int)
        labels = np.where(inside, 10 * (1 + octant[0] + 2 * octant[1] + 4 * octant[2]), 0)
        return FeatureSpace.of_labels("atlas", labels.astype(np.int32), affine)
    return FeatureSpace.of_labels("mask", inside.astype(np.int32), affine)


def events(rounds: int, *, rank: int, rows: int, private: bool) -> tuple[Event, ...]:
    """Return a subspace release, two looks, and `rounds` solver rounds."""
    asked = [("pca", 1, "projector", "psd", rows * (rows + 1) // 2, rank**0.5)]
    asked += [
        ("whitening", k, "log-covariance", "ball", rank * (rank + 1) // 2, 4.0) for k in (1, 2)
    ]
    n = max(1, rank * (rank - 1) // 2)
    asked += [("iterate", k, "gradient", "ball", n, 0.35) for k in range(1, rounds + 1)]
    weights = [0.4, 0.15, 0.15] + [0.3 / rounds] * rounds
    mus = split_mu(Budget.of(epsilon=1.0, delta=DELTA).mu, weights)
    made = []
    for (phase, k, field, shape, size, clip), mu in zip(asked, mus, strict=True):
        common = {"phase": phase, "round": k, "field": field, "shape": shape, "size": size}
        made.append(
            plan_event(**common, clip=clip, mu=mu, shares=2)
            if private
            else plan_event_without_noise(**common, clip=clip, n_subjects=1024)
        )
    return tuple(made)


def maps_of(space: FeatureSpace, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Return sparse skewed maps, shape (D, rank), in final order and sign."""
    raw = rng.standard_normal((space.n_features, rank)) ** 3 * np.linspace(1.0, 0.5, rank)
    return apply_order(arrange(raw), raw, axis=1)


def outcome(
    space: FeatureSpace | None = None,
    *,
    rank: int = 3,
    rounds: int = 12,
    private: bool = True,
    seeded: bool = False,
    A: np.ndarray | None = None,
    seed: int = 5,
    **changes: object,
) -> IcaOutcome:
    """Return an invented outcome with a real ledger; `changes` replace attributes."""
    rng = np.random.default_rng(seed)
    space = mask_space() if space is None else space
    A = maps_of(space, rank, rng) if A is None else A
    rank = A.shape[1]
    rows = max(rank + 2, 10)
    plan = events(rounds, rank=rank, rows=rows, private=private)
    ledger = Ledger(budget=Budget.of(epsilon=1.0, delta=DELTA) if private else None)
    for event in plan:
        ledger = ledger.charge(event)
    roster = Roster(
        sites=tuple(RosterEntry(site=s, nonce="00" * 16, n_subjects=n) for s, n in SITES.items()),
        config="c0ffee" * 10 + "c0ff",
        space=space,
        n_basis=min(rows, space.n_features),
        colluders=1,
        survivors=3,
        seeded=seeded,
        plan=plan,
        warnings=(),
    )
    made = IcaOutcome(
        kind="temporal",
        computation="capedjica",
        version="0.1.0",
        run="ab12" * 8,
        config_digest="c0ffee" * 10 + "c0ff",
        settings={
            "epsilon": 1.0, "delta": DELTA, "private": private, "noise": "correlated",
            "key_trust": "aggregator", "feature_space": space.kind,
            "mask": "file", "atlas": "", "n_components": rank, "n_rounds": rounds,
        },
        label="dp" if private and not seeded else "none",
        status="converged",
        reason="The directions stopped moving.",
        stability=0.934,
        verdict=verdict_of(rank),
        roster=roster,
        fingerprint="0123456789abcdef",
        ledger=ledger,
        V=rng.standard_normal((rows, rank)),
        U=np.eye(rank),
        W=np.eye(rank),
        W_total=np.linalg.pinv(A),
        A=A,
        eigenvalues=np.r_[np.linspace(0.9, 0.5, rank), np.linspace(0.2, 0.0, rows - rank)],
        edge=0.25,
        gap_ratio=1.2,
        rank_status="gap",
        trace=tuple(
            RoundRecord(
                phase=event.phase,
                round=event.round,
                statistic_norm=1.0 + 1.0 / event.round,
                noise_norm=0.9,
                step_norm=0.3 / event.round,
                stability=0.0 if event.phase != "iterate" or event.round <= 10 else 0.934,
            )
            for event in plan
        ),
        rounds_planned=rounds,
        warnings=(),
    )  # fmt: skip
    if "status" in changes and "verdict" not in changes:
        # The verdict of a judged run decides its status; other runs have none.
        known = {"converged": made.verdict, "unconfirmed": verdict_of(rank, curvature=0.0)}
        known["not_separated"] = verdict_of(rank, gate=False, curvature=0.0)
        changes["verdict"] = known.get(str(changes["status"]))
    return dataclasses.replace(made, **changes)


def with_spatial_set(made: IcaOutcome, *, fits: bool = True) -> IcaOutcome:
    """Return the outcome with spatial components of its subspace, clearly sparse or not."""
    sparse = Sparseness(kurtosis=9.0, surrogate=1.0, surrogate_std=0.3, fits=fits)
    A = maps_of(made.space, made.A.shape[1], np.random.default_rng(6))
    return dataclasses.replace(made, spatial=SpatialSet(A=A, converged=True, sparseness=sparse))


def verdict_of(rank: int, *, gate: bool = True, curvature: float = 0.2) -> Confirmation:
    """Return what 40 rounds at a comfortable budget would say."""
    pairs = rank * (rank - 1) // 2
    response = np.full(pairs, curvature * 4000.0)
    sparse = range(rank)
    return judge_run(response, 4000.0, n_components=rank, gate=gate, dither=0.03, sparse=sparse)


def spatial_results(
    status: str,
    verdict: str,
    *,
    z: float,
    yes: int = 0,
    likely: int = 0,
    q: float = 1.0,
    **changes: object,
) -> MapResults:
    """Return results of a spatial run of brains with 15 maps."""
    made = results_of(dataclasses.replace(outcome(rank=3), kind="spatial", verdict=None))
    sides = LeftRightFigures(
        z=z, statistic=0.4, null=0.1, null_std=0.1, verdict=verdict, mirrored=True
    )
    claims = ClaimFigures(
        yes=yes,
        likely=likely,
        uncertain=15 - yes - likely,
        sharp=0,
        images=0,
        untold_pairs=0,
        q=q,
        cohort="most people carry networks",
        expected=0.94 * yes + 0.71 * likely + 0.3 * (15 - yes - likely),
    )
    model = dataclasses.replace(
        made.separation,
        kind="spatial",
        left_right=sides,
        claims=claims if verdict == "brain" else None,
    )
    changes = {"n_components": 15, "g_eff": 173.0, "g_needed": 90.0, **changes}
    return dataclasses.replace(made, status=status, separation=model, **changes)


def time_courses(rank: int, count: int) -> list[np.ndarray]:
    """Return time courses (rank, 70 + k) of `count` subjects, the same every time."""
    rng = np.random.default_rng(8)
    return [rng.standard_normal((rank, 70 + k)).astype(np.float32) for k in range(count)]


def site_outcome(made: IcaOutcome, labels: tuple[str, ...]) -> SiteOutcome:
    """Return what one site with these subjects would write."""
    rank = made.A.shape[1]
    factors = tuple(1.0 if k % 2 else 0.5 for k in range(len(labels)))
    return SiteOutcome(
        site="local0",
        outcome_status=made.status,
        fingerprint=made.fingerprint,
        names=tuple(f"C{k:02d}" for k in range(1, rank + 1)),
        time_courses=zip(labels, time_courses(rank, len(labels)), strict=True),
        ledger=made.ledger,
        A=made.A,
        space=made.space,
        computation=made.computation,
        settings=made.settings,
        clip_scales=(("pca", (1.0,) * len(labels)), ("iterate", factors)),
    )


def inside(made: IcaOutcome, labels: tuple[str, ...]) -> PrivateSummary:
    """Return what a driver would know of these subjects: data A S and noise; one failed."""

    def voxels() -> Iterator[tuple[str, np.ndarray]]:
        rng = np.random.default_rng(9)
        noise = 0.5 * made.A.std()
        courses = time_courses(made.A.shape[1], len(labels))
        for label, own in zip(labels, courses, strict=True):
            X = made.A @ own + noise * rng.standard_normal((len(made.A), own.shape[1]))
            yield label, X.astype(np.float32)

    return PrivateSummary(
        subjects=tuple(
            SubjectFacts(label=label, files=(f"{label}_bold.nii.gz",), n_timepoints=70 + k, tr=2.0,
                         coverage=0.98, rank=60, grid="ok", tsnr=40.0 + k)
            for k, label in enumerate(labels)
        ),
        failed={"sub-99": ("sub-99_bold.nii.gz",)},
        counted=CountedPeople(
            listed=len(labels) + 1, counted=len(labels), why={"a subject is constant": 1}
        ),
        checks=(Check(code="CAPE-W127", severity="X", text="A subject is constant. sub-99."),),
        policy={"min_subjects": 3, "veto": False},
        sent=tuple(
            {"seq": k, "phase": "join" if k == 1 else "pca", "round": 1,
             "message": "SiteCard" if k == 1 else "Masked", "fields": {"total": 400},
             "bytes": 500 + k, "sha256": f"{k:064d}"}
            for k in (1, 2)
        ),
        voxels=voxels,
    )  # fmt: skip
