"""FLARE's rounds without FLARE: bytes in, bytes out, whatever is lost or killed on the way."""

import dataclasses
import json
import logging
import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from cape.computations import load
from cape.engines.coinstac import documents
from cape.engines.coinstac.aggregator import gathered
from cape.engines.coinstac.computation import handle_end
from cape.engines.coinstac.documents import reply_document
from cape.engines.flare import rounds
from cape.engines.flare.job import JobPlan, write_job
from cape.engines.flare.rounds import SiteRounds
from cape.errors import CapeError, ConfigError
from cape.protocol.messages import Masked
from cape.protocol.phases import Envelope
from cape.site.identity import KEY_FILE, ROSTER_FILE, make_key
from cape.site.ledger_file import read_ledger
from cape.site.places import SitePlaces
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.flare import RUN, Calls, contents
from support.simulation import simulate

SEED = 11
POLICY = SitePolicy.of_simulation(private_results=True, simulation_seed=SEED)
SETTINGS = helper.settings_of("capedjica", n_sites=4, site_names="local0,local1,local2,local9")
SECAGG = {**SETTINGS, "aggregation": "secagg", "min_survivors": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flare") / "data"
    arrays = helper.datasets()
    arrays["local9"] = helper.subjects(5, seed=99)
    return helper.write_data(folder, arrays)


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    """What `memory` makes of the same seed."""
    with helper.without_pages():
        out = tmp_path_factory.mktemp("memory")
        simulate(data, out=out, settings=SETTINGS, seed=SEED, policy=POLICY)
    return out


@pytest.fixture
def calls(data, tmp_path, no_pages):
    return Calls(data, tmp_path / "work", POLICY)


def test_settings_that_every_computation_has_run_the_product(calls):
    """The owner of a job need not name it; a site is asked by its name."""
    common = {"epsilon": 8, "delta": 1e-5, "feature_space": "matrix", "basis": "none",
              "n_features": helper.N_FEATURES, "n_components": 2, "min_timepoints": 10}  # fmt: skip
    rounds = calls.aggregator(common)
    state = rounds.opening(sorted(calls.own))
    blobs = dict.fromkeys(calls.own, rounds.question(state))
    for _, raw in calls.ask(blobs, 1.0):
        assert not json.loads(raw)["error"]


def test_sites_of_one_process_take_nothing_of_each_other(calls, monkeypatch):
    """Policy, keys and ledger: a site that names none has its operator's, not another site's."""
    # Both are answered at the same time: each is in its exchange when the other one's begins.
    seen, both = {}, threading.Barrier(2, timeout=60)

    def border(who, document, places):
        both.wait()
        seen[document["state"]["clientId"]] = places
        both.wait()
        raise ConfigError("E010", setting="x", hint="")

    monkeypatch.setattr(rounds, "border", border)
    calls.operator = SitePlaces(policy=Path("/its/operator"))
    policy, runs = calls.own["local0"].policy, {s: own.runs for s, own in calls.own.items()}
    calls.own["local0"] = dataclasses.replace(
        calls.own["local0"], identity="/keys", home="/ledger", maps="/m.csv"
    )
    calls.own["local1"] = dataclasses.replace(calls.own["local1"], policy="")
    question = rounds.encode_blob(rounds.Question(run=RUN, iteration=1, input={}))
    with ThreadPoolExecutor(2) as pool:
        for said in pool.map(lambda s: calls.site(s).answer(question, ""), ("local0", "local1")):
            assert b"E010" in said
    assert seen == {
        "local0": SitePlaces(
            policy=Path(policy), identity=Path("/keys"), home=Path("/ledger"), maps=Path("/m.csv")
        ),
        "local1": SitePlaces(policy=Path("/its/operator"), home=Path(runs["local1"], ".cape-site")),
    }


class Killed(BaseException):
    """As if the process had ended there."""


def test_a_new_job_goes_on_after_the_aggregator_was_killed_in_any_exchange(calls, expected):
    """Also after half of the sites had answered the exchange that is asked again."""

    def kill(call: int, site: str) -> bool:
        if site == "local1" and call % 2 == 1:
            raise Killed
        return False

    calls.hang, kills, state = kill, 0, None
    while state is None:
        try:
            state = calls.play(SETTINGS)
        except Killed:
            kills += 1
    assert kills == state.iteration
    assert calls.scored() == contents(expected / "consortium")


def test_who_was_killed_while_it_wrote_down_where_it_stands_goes_on(calls, expected, monkeypatch):
    """A site's journal is ahead of its cache then, by one answer that nobody has seen."""
    # The aggregator stands an exchange back, and the sites repeat their answers.
    write, killed = rounds.overwrite, set()

    def dying(path, text):
        document = json.loads(text.partition(b"\n")[2] or text)
        number = document.get("iteration") or document["cape"]["head"]["cursor"]["seq"]
        key = (path, number)
        if key not in killed:
            killed.add(key)
            write(path, text[: len(text) // 2])
            raise MemoryError
        write(path, text)

    monkeypatch.setattr(rounds, "overwrite", dying)
    for _ in range(100):
        try:
            state = calls.play(SETTINGS)
            break
        except (CapeError, MemoryError):
            continue
    assert state.ended
    assert len(killed) == 5 * state.iteration
    assert calls.scored() == contents(expected / "consortium")


def test_a_run_goes_on_when_a_stopped_process_lets_go_of_its_sites_folder(
    calls, expected, monkeypatch
):
    """E263: until then the new process of the site cannot answer, and nothing is lost by asking."""
    monkeypatch.setattr("cape.site.files.LOCK_PATIENCE", 0.0)
    stopped, home = ExitStack(), calls.work / "local1" / RUN

    def stop(call: int, site: str) -> bool:
        if site == "local1" and call == 3:
            stopped.enter_context(rounds.folder_lock(home, "the stopped process"))
        return False

    calls.hang = stop
    for _ in range(2):  # a new job comes as far as the one before it
        with pytest.raises(CapeError, match=r"^CAPE-E156 Site local1 is missing"):
            calls.play(SETTINGS)
        assert b"CAPE-E263 " in b"".join(calls.said[-4:])  # then all hear how it ended
    stopped.close()
    assert calls.play(SETTINGS).ended
    assert calls.scored() == contents(expected / "consortium")


def test_without_drop_outs_a_silent_site_ends_the_run_which_can_go_on(calls, expected):
    calls.hang = lambda call, site: site == "local1" and 3 <= call <= 4
    with pytest.raises(CapeError, match=r"^CAPE-E156 Site local1 is missing.* in .* round 1"):
        calls.play(SETTINGS)
    everybody = tuple(sorted(calls.own))
    assert calls.asked[2:] == [everybody, ("local1",), everybody]  # once more, then the end
    assert calls.play(SETTINGS).ended
    assert calls.scored() == contents(expected / "consortium")


def test_sites_that_the_owner_did_not_name_are_not_asked(calls):
    calls.own["local7"] = calls.own.pop("local9")
    with pytest.raises(CapeError, match=r"^CAPE-E204 list of sites differs: the sites are local0"):
        calls.play(SETTINGS)
    assert calls.asked == [tuple(calls.own)]  # to hear why, and nothing else
    assert calls.said == [b'{"error":"","output":{"ended":"read"}}'] * len(calls.own)


def test_everybody_learns_why_the_aggregator_ended_a_run(calls, caplog):
    """It stood at the server alone: sites saw a job that was aborted, and asked the owner why."""
    refused = {**SETTINGS, "epsilon": 0.05}
    with pytest.raises(CapeError, match=r"^CAPE-E150 ") as caught:
        calls.play(refused)
    for site in calls.own:
        words = (calls.work / site / RUN / "output" / "site-error.txt").read_text()
        # Whose people are too few is not known.
        assert words == caught.value.public + "\n\nThe aggregator ended the run with this.\n"
        assert "accept_low_quality" in words
    assert [record.getMessage() for record in caplog.records].count(caught.value.public) == 4


def test_who_wrote_a_reason_of_its_own_keeps_it_below_that_of_the_run(calls):
    policy = Path(calls.own["local1"].policy)
    policy.write_text("max_run = [[0.001, 1e-5]]\nallow_not_private = true\n")
    with pytest.raises(CapeError, match=r"^CAPE-E154 Site policy of site local1 "):
        calls.play(SETTINGS)
    own = (calls.work / "local1" / RUN / "output" / "site-error.txt").read_text()
    assert "max_run = 0.001 at delta 1e-5, the run has" in own
    assert "nothing at this site is the reason" not in own
    other = (calls.work / "local0" / RUN / "output" / "site-error.txt").read_text()
    assert other.startswith("CAPE-E154 Site policy of site local1 ")
    assert "nothing at this site is the reason" in other


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("CAPE-E156 Site local1 is missing or answered late", True),
        ("CAPE-E156 Site local0 is missing or answered late", False),
        ("CAPE-E156 Site local0-b is missing or answered late", True),
        ("CAPE-E155 Versions differ between sites: local0 has 9, local1 has 8", False),
        ("CAPE-E155 Versions differ between sites: local1 has 9, the aggregator has 8", False),
        ("CAPE-E150 the maps would mostly show noise", False),
    ],
)
def test_nothing_here_is_the_reason_stands_only_where_that_is_known(tmp_path, text, is_known):
    """It stood at the site whose version was the reason."""
    handle_end(tmp_path, text, "local0")
    words = (tmp_path / "site-error.txt").read_text()
    assert ("nothing at this site is the reason" in words) is is_known


@pytest.mark.parametrize(
    "text",
    ["", "no code", "CAPE-E150 ", "CAPE-E150 a\nb", "CAPE-E150 \x1b[2J", "CAPE-E150 \u202e", 7,
     None, ["CAPE-E150 a"], "CAPE-E150 " + "a" * 1001],
)  # fmt: skip
def test_no_other_words_of_an_aggregator_are_written_at_a_site(calls, text):
    question = rounds.encode_blob(rounds.Question(run=RUN, iteration=1, input={"ended": text}))
    answer = calls.site("local0").answer(question, "")
    assert b"CAPE-E202" in answer
    words = (calls.work / "local0" / RUN / "output" / "site-error.txt").read_text()
    assert words.startswith("CAPE-E202 ")


def test_a_site_that_is_silent_in_join_ends_the_run_of_any_kind(calls):
    calls.hang = lambda call, site: site == "local1"
    with pytest.raises(CapeError, match=r"^CAPE-E156 Site local1 .* join round 1"):
        calls.play(SECAGG)


def test_the_log_says_for_whom_one_waits_before_the_patience_ends(calls, monkeypatch, caplog):
    """An owner waited for an hour in `join`, and read only then which site was dead."""
    told = threading.Event()

    def ask(blobs, timeout):
        del timeout
        yield from ((site, b"") for site in blobs if site != "local1")
        assert told.wait(60)

    monkeypatch.setattr(rounds, "TELL_EVERY", 0.001)
    caplog.set_level("INFO", logger="cape")
    log = logging.getLogger("cape")
    noticing = logging.Handler()
    noticing.emit = lambda line: told.set() if line.args == ("local1",) else None
    log.addHandler(noticing)
    try:
        with pytest.raises(CapeError):
            calls.aggregator(SECAGG).play(calls.own, ask, join=1.0, round=1.0)
    finally:
        log.removeHandler(noticing)
    assert "waiting for local1" in caplog.messages


def test_with_drop_outs_the_survivors_finish_as_they_do_in_memory(calls, data, tmp_path):
    def hang(call: int, site: str) -> bool:
        state = calls.aggregator(SECAGG).state()
        return site == "local1" and state is not None and state.input["phase"] == "iterate"

    calls.hang = hang
    state = calls.play(SECAGG)
    first = calls.asked.index(("local1",))
    assert state.ended
    assert "local1" not in state.remaining
    assert all("local1" not in sites for sites in calls.asked[first + 1 :])
    with helper.without_pages():
        out = simulate(
            data, out=tmp_path / "memory", settings=SECAGG, seed=SEED, policy=POLICY,
            drops=["local1@iterate:1"],
        )  # fmt: skip
    assert calls.scored() == contents(out)


@pytest.mark.parametrize("settings", [SETTINGS, SECAGG], ids=["all-sites", "secagg"])
def test_no_party_waits_for_its_disk_more_often_than_a_restart_needs(calls, monkeypatch, settings):
    """docs/decisions.md, "How often a party waits for its disk".  A site did five times."""
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def watched(handle: int, real=real) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(os, name, watched)
    found: dict[str, set[tuple[str, ...]]] = {}
    asked = calls.ask

    def taken() -> tuple[str, ...]:
        # What outlives the run, such as the ledger of all runs, has an order of its own.
        own = [Path(path) for path in synced if ".cape-site" not in path]
        synced.clear()
        return tuple("<run>" if len(path.name) == 32 else path.name for path in own)

    def ask(blobs, timeout):
        for site in blobs:
            phase = json.loads(blobs[site])["input"].get("phase", "join")
            if phase.startswith("iterate"):
                found.setdefault("aggregator", set()).add(taken())
            synced.clear()
            yield from asked({site: blobs[site]}, timeout)
            if phase.startswith("iterate"):
                found.setdefault("site", set()).add(taken())
            synced.clear()

    calls.ask = ask
    assert calls.play(settings).ended
    key = {path for path in found["site"] if len(path) > 3}
    answer = ("receipt.jsonl.partial", ".cape")
    caches = ("cache-0.json", "cache-1.json")
    if settings is SETTINGS:
        assert not key
        assert found["site"] == {(*answer, cache) for cache in caches}
    else:  # the used key set is gone before the answer leaves
        assert {path[1:2] + path[2:-1] for path in key} == {("<run>", *answer)}
        assert all(len(path) == 5 and path[0].startswith("vault-secagg.") for path in key)
    assert found["aggregator"] <= {("state-0.json",), ("state-1.json",), ()}


def test_where_a_run_stands_is_the_later_exchange_that_is_whole(calls, expected):
    """It is written in the place of the one before the last, and may be cut off there."""
    calls.play({**SETTINGS, "n_rounds": 3})
    home, rounds_ = calls.results.parent, calls.aggregator({**SETTINGS, "n_rounds": 3})
    last = rounds_.state()
    newer, older = (home / f"state-{(last.iteration + i) % 2}.json" for i in (0, 1))
    whole = newer.read_bytes()
    for cut in (b"", whole[:100], whole.rstrip()[:-1], whole.replace(b"e", b"f", 1)):
        newer.write_bytes(cut)
        assert rounds_.state().iteration == last.iteration - 1
    newer.write_bytes(whole + b" " * 4096)
    assert rounds_.state() == last
    for path in (newer, older):
        path.write_bytes(b"{}")
    with pytest.raises(CapeError, match="CAPE-E202"):
        rounds_.state()


def longest_question(calls, settings) -> int:
    """Play a run; return the length of the longest of all questions."""
    asked, lengths = calls.ask, []

    def ask(blobs, timeout):
        lengths.extend(len(blob) for blob in blobs.values())
        return asked(blobs, timeout)

    calls.ask = ask
    assert calls.play(settings).ended
    return max(lengths)


def test_shares_that_go_to_their_addressee_alone_leave_the_results_of_a_broadcast(
    data, tmp_path, no_pages, monkeypatch
):
    """As files of their own, as in a run of many sites, and with a site that drops out."""
    found = {}
    for way in ("broadcast", "addressed", "in files"):
        calls = Calls(data, tmp_path / way, POLICY)
        calls.hang = lambda call, site: site == "local1" and call > 12
        with monkeypatch.context() as patch:
            if way == "broadcast":
                patch.setattr(rounds, "for_site", lambda output, site: output)
            if way == "in files":
                patch.setattr(documents, "MAX_INLINE", 64)
            length = longest_question(calls, {**SECAGG, "n_rounds": 3})
        found[way] = length, calls.scored()
        assert not (calls.work / "remote" / RUN / "parts").exists()
    assert found["broadcast"][1] == found["addressed"][1] == found["in files"][1]
    assert found["addressed"][0] < found["broadcast"][0] / 2


@pytest.mark.parametrize("settings", [SETTINGS, SECAGG], ids=["all-sites", "secagg"])
def test_a_site_that_sends_no_answer_is_one_that_refuses(calls, monkeypatch, settings):
    ask = calls.ask

    def garbling(blobs, timeout):
        for site, raw in ask(blobs, timeout):
            yield site, b"{" if site == "local1" and len(calls.asked) > 3 else raw

    monkeypatch.setattr(calls, "ask", garbling)
    if settings is SECAGG:
        assert "local1" not in calls.play(settings).remaining
    else:
        with pytest.raises(CapeError, match=r"^CAPE-E202 "):
            calls.play(settings)


def test_nothing_but_a_public_text_leaves_a_site_that_fails(calls, monkeypatch):
    border = rounds.border

    def failing(role: str, *rest: object) -> dict[str, object]:
        if role == "local":
            raise RuntimeError("CANARY-7f3a /data/sub-01.nii")
        return border(role, *rest)

    monkeypatch.setattr(rounds, "border", failing)
    with pytest.raises(CapeError, match=r"^CAPE-E000 internal error"):
        calls.play(SETTINGS)
    assert b"CANARY" not in b"".join(calls.said)
    error = (calls.work / "local0" / RUN / "output" / "site-error.txt").read_text()
    assert "CANARY-7f3a" in error


@pytest.mark.parametrize("name", ["../x", "a" * 31, "0" * 32 + "\n", "", "G" * 32])
def test_a_run_names_no_other_folder(calls, name):
    question = rounds.Question(run=name, iteration=1, input=SETTINGS)
    answer = calls.site("local0").answer(rounds.encode_blob(question), "")
    assert b"CAPE-E202" in answer
    assert b"CAPE-E202" in calls.site("local0").deliver(name, {"results.json": b"{}"})
    assert [path.name for path in (calls.work / "local0").iterdir()] == ["site-policy.toml"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "a/b/c", ".x", "", "a//b", "x\n", 7])
def test_a_result_names_no_other_folder(calls, name):
    calls.play(SETTINGS)
    before = contents(calls.work / "local0")
    assert b"CAPE-E202" in calls.site("local0").deliver(RUN, {name: b"x"})
    assert contents(calls.work / "local0") == before


def test_the_end_brings_the_results_to_a_site_and_takes_the_key_of_its_vault(calls):
    calls.play(SETTINGS)
    home = calls.work / "local0" / RUN
    for path in (home / "cache-0.json", home / "cache-1.json"):
        assert "vault_key" in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
    files = calls.aggregator(SETTINGS).files()
    assert calls.site("local0").deliver(RUN, files) == b'{"error":"","output":{}}'
    delivered = {name: (home / "consortium" / name).read_bytes() for name in files}
    assert delivered == files
    assert contents(home / "consortium") == contents(calls.results)
    assert not list(home.glob("cache*"))
    assert not any("vault" in name for name in contents(home))


def test_a_site_takes_no_file_of_its_own_from_the_owners_settings(calls):
    settings = {**SETTINGS, "data": ["x.npy"], "manifest": ["m.tsv"], "policy": ["p.toml"]}
    question = rounds.Question(run=RUN, iteration=1, input=settings)
    taken: list[dict] = []

    class Taking(SiteRounds):
        def _input(self, question, own):
            taken.append(super()._input(question, own))
            return taken[-1]

    Taking("local0", lambda: calls.own["local0"], SitePlaces()).answer(
        rounds.encode_blob(question), ""
    )
    assert taken == [SETTINGS]


def test_pinned_keys_lie_in_a_folder_that_the_sites_own_file_names(calls, tmp_path):
    public = {}
    for site, own in calls.own.items():
        folder = tmp_path / f"identity-{site}"
        folder.mkdir()
        public[site] = make_key(folder / KEY_FILE)
        calls.own[site] = dataclasses.replace(own, identity=str(folder))
    for own in calls.own.values():
        (Path(own.identity) / ROSTER_FILE).write_text(json.dumps(public))
    assert calls.play({**SETTINGS, "key_trust": "pinned"}).ended


def test_pinned_keys_that_no_file_names_are_missing(calls):
    with pytest.raises(CapeError, match=r"^CAPE-E300 .* at site local0"):
        calls.play({**SETTINGS, "key_trust": "pinned"})


def test_replies_are_summed_as_they_arrive():
    """Of 64 vectors that come one by one, the memory of three is ever taken."""
    size, n_sites = 50_000, 64
    rng = np.random.default_rng(0)
    total = np.zeros(size, dtype=np.uint64)

    def arriving():
        for number in range(n_sites):
            vector = rng.integers(0, 2**64, size, dtype=np.uint64)
            total[:] += vector
            envelope = Envelope(
                v=1, run="", seq=2, phase="iterate", round=1, config="",
                body=Masked(total=vector, refused=False),
            )  # fmt: skip
            yield f"site{number}", reply_document(envelope)

    config = load("capedjica").config.from_input({**SETTINGS, "aggregation": "all-sites"})
    phase = load("capedjica").bind(config).phases["iterate"]
    tracemalloc.start()
    try:
        inbox = gathered(arriving(), phase)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    vectors = [envelope.body.total for envelope in inbox.values()]
    assert len(vectors) == n_sites
    np.testing.assert_array_equal(np.sum(vectors, axis=0, dtype=np.uint64), total)
    # A vector, its text in the document and while it is decoded, and the sum.
    assert peak < 10 * vectors[0].nbytes


@pytest.mark.parametrize("settings", [SETTINGS, SECAGG], ids=["all-sites", "secagg"])
def test_a_vector_of_another_length_is_named_with_its_site(calls, settings, monkeypatch):
    """It enters no running sum."""
    ask = calls.ask

    def shortening(blobs, timeout):
        for site, raw in ask(blobs, timeout):
            document = json.loads(raw)
            output = document["output"]
            if site == "local0" and output and output.get("phase") == "iterate":
                zeros = np.zeros(1, dtype=np.uint64)
                short = reply_document(
                    Envelope(**{**output, "body": Masked(total=zeros, refused=False)})
                )
                output["body"] = short["body"]
                raw = json.dumps(document).encode()
            yield site, raw

    monkeypatch.setattr(calls, "ask", shortening)
    # The first reply is what others are added to: a short one must not be stretched by them.
    named = r"^CAPE-E202 .*site local0 sent" if settings is SETTINGS else r"^CAPE-E2\d\d "
    with pytest.raises(CapeError, match=named):
        calls.play(settings)


def test_a_job_that_ends_before_its_run_frees_what_the_run_holds(data, tmp_path, no_pages) -> None:
    """The framework says that the job has ended: nobody has to wait for its silence."""
    policy = dataclasses.replace(POLICY, ledger_file=str(tmp_path / "{}.jsonl"))
    calls = Calls(data, tmp_path / "work", policy)
    for site, own in calls.own.items():
        text = Path(own.policy).read_text()
        Path(own.policy).write_text(text.replace("{}", site))
    at_work = {site: calls.site(site) for site in calls.own}
    calls.site = at_work.__getitem__  # one process for the length of a job
    aggregator = calls.aggregator(SETTINGS)
    state = aggregator.opening(sorted(calls.own))

    def exchanges(count: int) -> None:
        nonlocal state
        for _ in range(count):
            blobs = dict.fromkeys(calls.own, aggregator.question(state))
            state = aggregator.step(state, dict(calls.ask(blobs, 1.0)))

    def of_site(site: str) -> tuple[str, int]:
        (run,) = read_ledger(tmp_path / f"{site}.jsonl").runs
        return run.state, len(run.charges)

    exchanges(4)  # join, keys, probe, and the first release
    assert {of_site(site) for site in calls.own} == {("held", 1)}
    assert list(calls.work.rglob("*.arrays"))
    for site in calls.own:
        at_work[site].leave()
        at_work[site].leave()
    assert not list(calls.work.rglob("*.arrays"))
    assert {of_site(site) for site in calls.own} == {("failed", 1)}
    # Who looks for a run finds it by one name: job, folders, page, and the ledger of each site
    assert {read_ledger(tmp_path / f"{site}.jsonl").runs[0].shown for site in calls.own} == {RUN}
    # Another job goes on with the run: it asks for its place again, and charges nothing twice.
    while not state.ended:
        exchanges(1)
    for site in calls.own:
        at_work[site].leave()
    planned = len(calls_plan(calls))
    assert {of_site(site) for site in calls.own} == {("finished", planned)}


@pytest.mark.parametrize("exchange", [1, 2, 4, 5])
def test_a_run_that_a_site_refuses_leaves_no_reduced_data_at_any_site(calls, monkeypatch, exchange):
    """Those of everybody lay at the other sites for good, which "the run ends" did not say."""
    ask, found = calls.ask, []

    def refusing(blobs, timeout):
        if any(json.loads(blob)["iteration"] == exchange for blob in blobs.values()):
            found.extend(calls.work.rglob("*.arrays"))
            policy = Path(calls.own["local1"].policy)
            policy.write_text(policy.read_text() + "veto = true\n")
        return ask(blobs, timeout)

    monkeypatch.setattr(calls, "ask", refusing)
    with pytest.raises(CapeError, match=r"E15[34]"):
        calls.play(SETTINGS)
    assert found  # before the end was told
    assert not list(calls.work.rglob("*.arrays*"))


def calls_plan(calls) -> list[object]:
    text = (calls.results / "privacy.json").read_text()
    return json.loads(text)["ledger"]["entries"]


def test_job_folder_methods_and_results_show_the_same_eight_letters(calls, tmp_path) -> None:
    assert calls.play(SETTINGS).ended
    write_job(tmp_path / "job", JobPlan(run=RUN, settings=SETTINGS))
    assert json.loads((tmp_path / "job" / "meta.json").read_text())["name"] == f"cape-{RUN[:8]}"
    assert calls.results.parent.name == RUN
    assert f"run {RUN[:16]})" in (calls.results / "methods.md").read_text()
    assert json.loads((calls.results / "results.json").read_text())["run"] == RUN
