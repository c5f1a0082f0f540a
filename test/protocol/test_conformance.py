"""What every computation must keep, with nothing to register: parametrised over `names()`.

The letters are those of the design: a one answer whatever carries it, b codec, c order, d length,
e public fields, f ledgers, g sensitivity, h error texts, i a lost site, j settings, k imports.
"""

import dataclasses
import functools
import json
import math
import os
import re
import subprocess
import sys
import typing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cape.computations import load, names
from cape.engines.coinstac import computation as coinstac
from cape.engines.coinstac.documents import decode_run, encode_run
from cape.errors import CapeError, OutOfPhaseError, public_text
from cape.markers import Marker
from cape.privacy.cost import total_of
from cape.privacy.ledger import by_exchange
from cape.privacy.mechanisms import overflow_bound
from cape.protocol import wire
from cape.protocol.model import joined
from cape.protocol.secure_sum import SecureSum, chunks, clipped_sum, releases_are_local
from cape.settings.config import PRODUCT
from cape.settings.documents import not_default, toml_text
from cape.settings.option import choices
from cape.simulation import transports, ways
from cape.site.places import POLICY_VARIABLE, SitePlaces
from cape.site.policy import SitePolicy
from cape.site.store import MemoryStore
from support import consortium as helper
from support.simulation import simulate

Consortium, canonical, settings_of = (helper.Consortium, helper.canonical, helper.settings_of)
cheating = helper.cheating
ROOT = Path(__file__).parents[2]

every_computation = pytest.mark.parametrize("name", names())


def aggregations(name: str) -> tuple[str, ...]:
    """Return the aggregations that the settings of a computation allow."""
    return choices(typing.get_type_hints(load(name).config)["aggregation"])


every_computation_and_aggregation = pytest.mark.parametrize(
    ("name", "aggregation"), [(name, how) for name in names() for how in aggregations(name)]
)
promising = [name for name in names() if load(name).guarantee == "dp"]
every_promise = pytest.mark.parametrize("name", promising)
"""Of those that can be private; comparisons labelled "none" draw no noise of the mechanism."""
with_real_noise = pytest.mark.parametrize(
    "name", [name for name in names() if not load(name).simulation_only]
)


@functools.cache
def finished(name: str, **changed):
    """Return a finished run in memory; tests read it and never play on."""
    return Consortium(name, **changed).play()


def exchanges(name: str) -> list[tuple[str, int]]:
    return finished(name).phases()


# -- a: one answer whatever carries it -------------------------------------------------------------


class AskedTwice(transports.NewProcess):
    """One process per party and round; the first site is asked everything twice."""

    repeats = 0

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        answer = super().__call__(role, party, text)
        if party == "local0":
            AskedTwice.repeats += 1
            again = super().__call__(role, party, text)
            assert helper.repeated(again) == helper.repeated(answer)
            return again  # `join` asked again begins anew: its first answer is of no use any more
        return answer


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == PRODUCT else pytest.mark.slow) for name in names()],
)
def test_a_memory_wire_and_processes_give_the_same_bytes(name, tmp_path, monkeypatch) -> None:
    """Files of the consortium and of the sites; a killed and restarted process changes nothing."""
    if name == PRODUCT:  # once is enough: the driver is the same for all
        play = functools.partial(ways._on_this_computer, AskedTwice)
        monkeypatch.setitem(ways.WAYS, "process", ways.Way(play=play))
    monkeypatch.setenv("PYTHONPATH", str(helper.no_pictures(tmp_path / "hidden")))
    found = played(name, tmp_path, ("memory", "wire", "process"))
    assert found["memory"] == found["wire"] == found["process"]
    results = json.loads(found["process"]["consortium/results.json"])
    assert (results["private"], results["epsilon"]) == (False, None)
    if name in promising:
        assert results["epsilon_planned"] == pytest.approx(100.0)
    assert AskedTwice.repeats >= 6 or name != PRODUCT


@every_computation
def test_a_memory_and_wire_give_the_same_bytes(name, tmp_path) -> None:
    found = played(name, tmp_path, ("memory", "wire"))
    assert found["memory"] == found["wire"]


def played(name: str, folder: Path, modes: tuple[str, ...]) -> dict[str, dict[str, bytes]]:
    """Return the files of a run by mode, without the pages, and run.json, which says the mode."""
    data = helper.write_data(folder / "data", computation=name)
    chosen = settings_of(name, computation=name, **helper.SHORTER.get(name, {}))
    found: dict[str, dict[str, bytes]] = {}
    for through in modes:
        out = folder / through
        with helper.without_pages():
            simulate(data, out=out, through=through, settings=chosen, seed=3)
        found[through] = {
            str(path.relative_to(out)): path.read_bytes()
            for path in out.rglob("*")
            if path.is_file() and path.name not in ("index.html", "methods.md", "run.json")
        }
        assert len(found[through]) > 8
    return found


# -- b: codec --------------------------------------------------------------------------------------


@functools.cache
def said(name: str, aggregation: str) -> list[tuple[type, bytes]]:
    """Return every kind of message and state of a run, as (declared type, bytes)."""
    run = finished(name, aggregation=aggregation)
    found = []
    for inbox, broadcast in zip(run.sent, run.broadcasts, strict=True):
        found += [(type(reply.body), canonical(reply.body)) for reply in inbox.values()]
        found.append((type(broadcast.body), canonical(broadcast.body)))
    found.append((run.computation.model, canonical(run.state.model, run.computation.model)))
    return found


@every_computation_and_aggregation
def test_b_every_message_and_model_survives_encoding(name, aggregation) -> None:
    for kind, text in said(name, aggregation):
        assert wire.dumps(wire.encode(wire.decode(wire.loads(text), kind), kind)) == text
    run = finished(name, aggregation=aggregation)
    for state in (run.state, *run.runs.values()):
        document = wire.loads(wire.dumps(encode_run(state)))
        back = decode_run(run.computation, document, party="x")
        assert (back.run, back.cursor, back.ledger) == (state.run, state.cursor, state.ledger)
        assert back.config == state.config
        assert encode_run(back) == encode_run(state)


# -- c, d: order and length ------------------------------------------------------------------------


@every_computation_and_aggregation
def test_c_every_phase_outside_then_is_refused(name, aggregation) -> None:
    run = Consortium(name, aggregation=aggregation)
    honest, rows = run.computation, run.computation.bind(run.config).phases
    asked = 0
    while not run.ended:
        phase = rows[run.state.cursor.phase]
        inbox = run.answers()
        before = dict(run.runs), run.state
        _, broadcast, _ = run.combine(inbox)
        outside = [other for other in (*rows, "no-such-phase", "") if other not in phase.then]
        for other in outside:
            asked += 1
            seq = run.state.cursor.seq + 1
            for site in run.parties:
                with pytest.raises(OutOfPhaseError, match="E201"):
                    run.answer(site, replace(broadcast, seq=seq, phase=other))
        for other in [*outside, *([None] if phase.then else [])]:
            run.computation = cheating(run, phase, broadcast.body, other)
            with pytest.raises(OutOfPhaseError, match="E201"):
                run.combine(inbox)
            run.computation = honest
        assert (dict(run.runs), run.state) == before
        run.go_on(run.combine(inbox))
    assert asked > len(rows)


@every_computation_and_aggregation
def test_d_every_phase_is_reached_and_the_run_ends_as_planned(name, aggregation) -> None:
    run = finished(name, aggregation=aggregation)
    rows = run.computation.bind(run.config).phases
    assert {phase for phase, _ in run.phases()} == set(rows)
    assert list(dict.fromkeys(phase for phase, _ in run.phases())) == list(rows)
    assert len(set(run.phases())) == len(run.phases())
    planned = {broadcast.progress.exchanges for broadcast in run.broadcasts[:-1]}
    assert len(run.phases()) <= max(planned)
    lines = [broadcast.progress for broadcast in run.broadcasts[:-1]]
    assert [(line.phase, line.round) for line in lines] == run.phases()[1:]
    assert [line.exchange for line in lines] == list(range(2, len(lines) + 2))
    assert all(a.mu <= b.mu for a, b in pairwise(lines))


# -- e: what is public does not depend on data -----------------------------------------------------


@every_computation_and_aggregation
def test_e_nothing_marked_public_depends_on_data(name, aggregation) -> None:
    """Two data sets of equal sizes give identical public fields, under the same seed."""
    one = finished(name, aggregation=aggregation)
    two = Consortium(name, helper.datasets(seed=7), aggregation=aggregation).play()
    n_ring, n_released, released = 0, 0, False
    # Sites are seen one by one with local noise, and with the papers' Gaussian zero-sum noise.
    gaussian = getattr(one.config, "zero_sum", "ring") == "gaussian"
    seen = gaussian or releases_are_local(one.config)
    for i, (mine, theirs) in enumerate(zip(one.sent, two.sent, strict=False)):
        for site in mine:
            a, b = mine[site], theirs[site]
            assert (a.v, a.seq, a.config) == (b.v, b.seq, b.config)
            for field, hint in typing.get_type_hints(type(a.body), include_extras=True).items():
                (marker,) = (m for m in hint.__metadata__ if isinstance(m, Marker))
                values = getattr(a.body, field), getattr(b.body, field)
                if field == "signature" and released:
                    continue  # over the broadcast that it answers, which follows from a release
                if marker.reason in ("public", "named"):
                    assert values[0] == values[1], (site, a.phase, field)
                elif marker.reason == "ring":
                    n_ring += values[0].size
                elif marker.reason == "released":  # where the table says that sites are seen
                    assert seen
                    assert (a.phase.removesuffix(".released"), a.round) in {
                        (e.phase, e.round) for e in joined(one.state.model).plan
                    }
                    n_released += values[0].size
                else:  # shares of keys, which know no data either
                    assert marker.reason in ("sealed", "opened")
                    assert values[0].keys() == values[1].keys()
        released |= canonical(one.broadcasts[i].body) != canonical(two.broadcasts[i].body)
    # Every site sends each number of the plan once at least.
    planned = sum(event.size for event in joined(one.state.model).plan)
    assert n_ring + n_released >= planned * len(one.sent[0])
    assert bool(n_released) == seen


# -- f: ledgers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "aggregation", "private"),
    [
        (name, how, private)
        for name in names()
        for how in aggregations(name)
        for private in ((True, False) if name in promising else (False,))
    ],
)
def test_f_all_ledgers_equal_each_other_and_the_plan(name, private, aggregation) -> None:
    run = finished(name, private=private, aggregation=aggregation)
    plan = joined(run.state.model).plan
    ledgers = [run.state.ledger, *(state.ledger for state in run.runs.values())]
    assert all(ledger == ledgers[0] for ledger in ledgers)
    done = [exchange for exchange in run.phases() if exchange in {(e.phase, e.round) for e in plan}]
    found = by_exchange(plan)
    assert ledgers[0].events == tuple(event for exchange in done for event in found[exchange])
    if private:
        assert len(ledgers[0].events) == len(plan)
        assert ledgers[0].spent == total_of(plan)
        assert ledgers[0].epsilon_spent() <= run.config.epsilon
    else:
        assert (ledgers[0].spent.mu(), ledgers[0].epsilon_spent()) == (None, None)
        assert not any(event.private for event in plan)
    assert run.outcome.ledger == ledgers[0]


@pytest.mark.parametrize("name", sorted(set(names()) - set(promising)))
def test_f_what_guarantees_nothing_is_never_stamped_and_never_made_private(name) -> None:
    outcome = finished(name).outcome
    assert (outcome.label, outcome.ledger.spent.mu()) == ("none", None)
    with pytest.raises(CapeError, match=f"E255 {name} gives no privacy: got private=true"):
        Consortium(name, private=True)
    if not load(name).simulation_only:
        assert finished(name, seed=None).outcome.label == "none"
        return
    run = Consortium(name, seed=None)
    with pytest.raises(CapeError, match=f"E256 {name} gives no guarantee"):
        run.play()
    assert [phase for phase, _ in run.phases()] == ["join"]  # in the answer to the roster


@every_promise
def test_f_only_real_noise_is_stamped_as_private(name) -> None:
    assert finished(name).outcome.label == "none"
    assert finished(name).outcome.roster.seeded
    assert finished(name, private=False).outcome.label == "none"
    assert finished(name, private=False, seed=None).outcome.label == "none"
    real = finished(name, seed=None).outcome
    assert (real.label, real.roster.seeded) == ("dp", False)


@with_real_noise
def test_f_one_seeded_site_stamps_the_whole_run(name) -> None:
    run = Consortium(name, seed=None)
    run.parties["local1"].noise = helper.noise(5, "local1")
    run.exchange()
    assert run.request.body.seeded
    assert {inbox.body.noise for inbox in run.sent[0].values()} == {"os", "seeded"}


@every_computation
def test_f_a_site_takes_no_other_size_of_the_basis_from_the_aggregator(name) -> None:
    """The plan is the honest one: a site must compare d with its own, before it sends a key."""
    run = Consortium(name)
    join, inbox = run.computation.bind(run.config).phases["join"], run.answers()
    honest, (_, broadcast, _) = run.computation, run.combine(inbox)
    wrong = replace(broadcast.body, n_basis=broadcast.body.n_basis - 1)
    run.computation = cheating(run, join, wrong, broadcast.phase)
    run.go_on(run.combine(inbox))
    run.computation = honest
    with pytest.raises(CapeError, match=r"E231 .*local0: the size of the public basis"):
        run.answer("local0")


# -- g: sensitivity --------------------------------------------------------------------------------

T = 40


def one_subject() -> st.SearchStrategy[np.ndarray]:
    """Anything that can be in a matrix of a subject: the checks of the data layer do not count."""
    wild = st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 3e38, 1e30, 1e-30,
         5e-324, 1e-310, 1e-45, 7.0]
    )  # fmt: skip

    def build(draw_kind: int, n_times: int, seed: int, values: list[float]) -> np.ndarray:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((helper.N_FEATURES, n_times))
        if draw_kind == 0:
            return X
        if draw_kind == 1:
            return np.full_like(X, values[0])
        if draw_kind == 2:
            with np.errstate(all="ignore"):
                return X * values[0]
        if draw_kind == 3:  # a few wild entries
            for i, value in enumerate(values):
                if X.size:
                    X.flat[(i * 7919 + seed) % X.size] = value
            return X
        if draw_kind == 4:  # rank one
            return np.outer(rng.standard_normal(len(X)), rng.standard_normal(n_times))
        if draw_kind == 5:  # as far as it goes from a usual subject: the templates flipped
            return -1e6 * helper.TEMPLATES @ rng.standard_normal((3, n_times))
        return rng.choice(values, size=X.shape)

    return st.builds(
        build,
        st.integers(0, 6),
        st.sampled_from([T, T, T, 1, 2, 3, 0, 90]),
        st.integers(0, 2**32 - 1),
        st.lists(wild, min_size=1, max_size=4),
    )


def stages(name: str):
    """Return (entry, events, public model before it) of every round of a finished run."""
    run = finished(name)
    entries = {e.name: e for e in run.computation.table if isinstance(e, SecureSum)}
    events = by_exchange(joined(run.state.model).plan)
    return [
        (entries[phase], events[phase, number], models[0])
        for (phase, number), models in zip(run.phases(), run.models, strict=True)
        if phase in entries
    ]


def summed(name: str, entry: SecureSum, model, events, arrays) -> list[list[int]]:
    """Return the exact integer sums of one site with these subjects, before any noise."""
    party = Consortium(name).parties["local0"]
    party.source = helper.source_of(party.config, arrays)
    party.store = MemoryStore(party.id)
    queries = entry.estimator(party.config, model).queries(entry.current(party.config, model))
    stacks = entry.input(party, model)
    totals = []
    for query, event in zip(queries, events, strict=True):
        totals.append(clipped_sum(chunks(stacks), query, event))
        assert totals[-1].shape == (query.size,)
    return [total.tolist() for total in totals]


def distance2(left: list[int], right: list[int]) -> int:
    return sum((x - y) ** 2 for x, y in zip(left, right, strict=True))


@pytest.mark.long
@every_computation
@settings(max_examples=40)
@given(one=one_subject(), other=one_subject(), place=st.integers(0, 2))
def test_g_neighbours_are_never_further_apart_than_the_sensitivity(name, one, other, place) -> None:
    """Replace one subject by another: exact L2 distance of the integer sums, for every release."""
    fixed = helper.subjects(2, seed=1)
    a, b = ([*fixed[:place], X, *fixed[place:]] for X in (one, other))
    run = finished(name)
    with np.errstate(all="ignore"):
        for entry, events, model in stages(name):
            sums = (summed(name, entry, model, events, arrays) for arrays in (a, b))
            for event, left, right in zip(events, *sums, strict=True):
                assert distance2(left, right) <= event.delta_int**2, event.name
                bound = overflow_bound(event, len(run.parties), joined(model).n_subjects)
                assert all(abs(x) <= 3 * event.clip_int <= bound for x in left)


@every_promise
def test_g_the_worst_neighbours_come_near_the_bound(name) -> None:
    """The bound is not vacuous: two loud subjects are more than a tenth of it apart."""
    entry, events, model = stages(name)[0]
    event = events[0]
    one, other = helper.subjects(1, seed=1), helper.subjects(1, seed=2)
    other[0] = np.roll(other[0], 5, axis=0) * np.arange(1, len(other[0]) + 1)[:, None]
    high, low = [np.full_like(one[0], 99.0)], [np.full_like(one[0], -99.0)]
    flipped = [-1e6 * helper.TEMPLATES @ np.random.default_rng(0).laplace(size=(3, 40))]
    distances = []
    fixed = helper.subjects(2, seed=3)
    for pair in ((one, other), (high, low), (one, flipped)):  # another shape, level, template
        left, right = (summed(name, entry, model, events, [*X, *fixed])[0] for X in pair)
        distances.append(math.sqrt(distance2(left, right)))
    assert 0.1 * event.delta_int < max(distances) <= event.delta_int


# -- h: error texts --------------------------------------------------------------------------------

CANARY = re.compile(r"canary|zq7|31337|sub-|\.npy|\.toml|/|\\\\|Traceback|0x", re.IGNORECASE)


def hostile(folder: Path) -> dict[str, dict]:
    """Write sites whose data cannot be used, under names and numbers that must never travel."""
    rng = np.random.default_rng(0)
    good = rng.standard_normal((helper.N_FEATURES, T)) * 31337.25
    made: dict[str, dict] = {}

    def site(name: str, *arrays: object, **given_: object) -> Path:
        base = folder / f"canary-{name}"
        base.mkdir(parents=True)
        for m, array in enumerate(arrays):
            path = base / f"sub-canary{m}.npy"
            if isinstance(array, bytes):
                path.write_bytes(array)
            else:
                np.save(path, array)
        made[name] = {"base": base, "given": given_}
        return base

    nan = good.copy()
    nan[:, 3:20] = np.nan
    site("nan", nan, nan + 1, nan + 2)
    site("constant", *(np.full_like(good, 31337.0 + i) for i in range(3)))
    site("short", good[:, :5], good[:, :5] + 1, good[:, :5] + 2)
    site("empty-file", b"", b"", b"")
    site("truncated", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', zq7", good)
    site("text", b"zq7 canary 31337.25\n" * 9, good)
    site("one-dimension", good[0], good[1], good[2])
    site("objects", np.array([{"zq7": 31337.25}], dtype=object), good)
    site("none")
    site("missing", good, data=["sub-canary9.npy"])
    site("outside", good, data=["../canary-nan/sub-canary0.npy"])
    site("absolute", good, data=["/etc/passwd-zq7"])
    site("wrong-type", good, data=31337)
    site("folder", good, data=["canary-folder"])
    (made["folder"]["base"] / "canary-folder").mkdir()
    site("same-twice", good, good, good)
    site("features", good, good[:7], good[:9])
    site("complex", good * 1j, good * 2j, good * 3j)
    site("manifest", good, manifest=["canary-zq7.tsv"])
    (made["manifest"]["base"] / "canary-zq7.tsv").write_text("zq7\tcanary\n31337.25\tsub-1\n")
    site("policy", good, good + 1, good + 2, policy=["canary-policy.toml"])
    (made["policy"]["base"] / "canary-policy.toml").write_text("zq7 = = 31337")
    return made


# What a table of people can hold is in test/unit/computations/test_capecontrast.py.
@pytest.mark.parametrize("name", [name for name in names() if name != "capecontrast"])
def test_h_public_error_texts_hold_no_path_name_or_number(name, tmp_path, monkeypatch) -> None:
    chosen = settings_of(name, computation=name, n_sites=3)
    # Content ends a run only where the policy says so; and not every case at the policy.
    policy = tmp_path / "own.toml"
    unpromised = name not in promising
    limits = SitePolicy.of_simulation(min_subjects=3, stop_for_data=True)
    policy.write_text(toml_text(not_default(replace(limits, allow_not_private=unpromised))))
    seen: set[str] = set()
    for case, found in hostile(tmp_path / "zq7-data").items():
        places = {
            place: str(tmp_path / case / "zq7" / place)
            for place in ("outputDirectory", "cacheDirectory", "transferDirectory")
        }
        state = {**places, "baseDirectory": str(found["base"]), "clientId": "B", "iteration": 1}
        document = {"input": {**chosen, **found["given"]}, "cache": {}, "state": state}
        with pytest.raises(CapeError) as caught:
            coinstac.run("local", document, SitePlaces(policy=policy))
        public = public_text(caught.value)
        seen.add(caught.value.code)
        text = public.replace("site-error.txt", "").replace("site policy", "")
        assert not CANARY.search(text), (case, public)
        error = Path(state["outputDirectory"], "site-error.txt").read_text()
        assert error.startswith(public)
        assert error.strip() != public, case  # the site itself is told more
        assert not (Path(state["outputDirectory"]) / ".cape").exists()
    assert len(seen) >= 6, seen  # all that the content of a file says is one of them, E100


# -- i: a site that is lost ------------------------------------------------------------------------


@every_computation
def test_i_one_lost_site_ends_the_run_with_a_clean_error_at_every_phase(name) -> None:
    """COINSTAC: no drop-out branch; nothing is summed and the aggregator charges nothing."""
    run = Consortium(name)
    while not run.ended:
        inbox = run.answers()
        without = {site: reply for site, reply in inbox.items() if site != "local2"}
        state = run.state
        first = state.cursor.seq == 1
        if first:  # the roster is made of those who came: two are fewer than min_sites
            with pytest.raises(CapeError, match="E152 2 sites joined, but n_sites is 3"):
                run.combine(without)
        else:
            text = f"E156 Site local2 is missing or answered late in {state.cursor.phase} round"
            with pytest.raises(CapeError, match=text):
                run.combine(without)
        assert run.outcome is None
        run.go_on(run.combine(inbox))


# -- j: settings -----------------------------------------------------------------------------------


@every_computation
def test_j_every_setting_is_part_of_the_digest(name) -> None:
    config = load(name).config.from_input({"epsilon": 1.0, "delta": 1e-5})
    digests = {config.digest()}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        other = f"{value}x" if isinstance(value, str) else (value or 0) + 1
        digests.add(replace(config, **{field.name: other}).digest())
    assert len(digests) == len(dataclasses.fields(config)) + 1


# -- k: imports ------------------------------------------------------------------------------------

# `cython_runtime` is of numpy's own generators of random numbers.
ALLOWED = {
    "cape", "numpy", "simplejson", "cryptography", "_cffi_backend", "cffi", "cython_runtime",
}  # fmt: skip
SHOW = """
import atexit, runpy, sys
before = set(sys.modules)
def show():
    with open({path!r}, "w") as file:
        file.write("\\n".join(sorted(set(sys.modules) - before)))
atexit.register(show)
sys.argv = [{program!r}]
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.long
@every_computation
def test_k_a_release_imports_four_packages_only(name, recording, tmp_path) -> None:
    if name != "capedjica":
        recording = helper.record(tmp_path / "own", name)
    last_release = list(recording.answers)[-2]  # before `report`, which may import more
    for role, party in (("local", "local0"), ("remote", "remote")):
        engine = recording.at(last_release, tmp_path / role)
        answers = recording.answers[last_release]
        inbox = {site: json.loads(answers[site])["output"] for site in engine.sites}
        listed = tmp_path / f"{role}.txt"
        code = SHOW.format(path=str(listed), program=str(ROOT / f"{role}.py"))
        text = engine.document(party, engine.input if role == "local" else inbox)
        environment = {**os.environ, POLICY_VARIABLE: str(
            engine.work / party / "site-policy.toml")}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code], input=text, capture_output=True, env=environment,
            cwd=ROOT, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == answers[party]
        tops = {module.partition(".")[0] for module in listed.read_text().split()}
        foreign = tops - set(sys.stdlib_module_names) - ALLOWED
        assert {t for t in foreign if not t.startswith("_")} == set(), foreign
        assert "numpy" in tops
        modules = set(listed.read_text().split())
        assert not {m for m in modules if m.startswith(("cape.report", "cape.data", "cape.cli"))}
