"""Whole runs, looked at from outside: what leaves a site, and what is left behind.

For every computation and every driver.  Entropy is fresh where a test says so; each such test
states its probability of a false alarm.  The mistakes at the end must each turn a check red.
"""

import dataclasses
import functools
import io
import json
import math
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cape.computations import load, names
from cape.engines.coinstac.documents import decode_envelope, decode_run, reply_document
from cape.errors import CapeError, ConfigError
from cape.markers import PUBLIC, RELEASED, RING, Marker
from cape.protocol import wire
from cape.secagg import keys
from cape.site.site_data import FileSource
from support import carriers, engines, recorder, say, scanner
from support import consortium as helper

FALSE_ALARM = 1e-6
AGGREGATIONS = ("all-sites", "secagg")
trust = pytest.mark.trust
every_computation = pytest.mark.parametrize("name", names())


def allows(name: str, **changed: str) -> bool:
    """Tell whether a computation has runs with these settings."""
    try:
        load(name).config.from_input(helper.settings_of(name, **changed))
    except ConfigError:
        return False
    return True


@functools.cache
def simulated(name: str) -> bool:
    """Tell whether a computation promises nothing and refuses to run on real entropy."""
    try:
        helper.Consortium(name, seed=None).until("zero-sum").exchange()
    except CapeError as err:
        return err.code.endswith("E256")
    return False


PRODUCT = "capedjica"
every_aggregation = pytest.mark.parametrize(
    ("name", "aggregation"),
    [
        pytest.param(n, a, marks=() if a == "all-sites" or n == PRODUCT else trust)
        for n in names()
        for a in AGGREGATIONS
        if allows(n, aggregation=a)
    ],
)


# The SDK leaves streams of builds and logs to the garbage collector.
quiet = pytest.mark.filterwarnings("ignore::ResourceWarning")
quieter = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def worth(name: str, through: str, aggregation: str) -> bool:
    """Tell whether this way says anything new: containers carry the same documents for all."""
    if through == "docker" or through in engines.ENGINES:
        return name == PRODUCT or (aggregation == "all-sites" and through != "engine-1")
    return True


def when(name: str, through: str, aggregation: str) -> tuple[pytest.MarkDecorator, ...]:
    """Say when a driver is listened to: the short form in the default run, all in the long one."""
    short = aggregation == "all-sites"
    long_form = () if short and name == PRODUCT else (trust,)
    if through == "docker":
        return (pytest.mark.docker, quiet, quieter, *long_form)
    if through in engines.ENGINES:
        return (pytest.mark.engine, quiet, quieter, *long_form)
    if short and (through == "wire" or (through == "service-2" and name == PRODUCT)):
        return ()
    return (trust,)


every_way = pytest.mark.parametrize(
    ("name", "through", "aggregation"),
    [
        pytest.param(n, t, a, marks=when(n, t, a))
        for n in names()
        for t in ("memory", *carriers.CARRIERS, *engines.ENGINES)
        for a in AGGREGATIONS
        if allows(n, aggregation=a) and worth(n, t, a)
    ],
)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Return whole runs with real entropy, each played once; in new processes: seeded."""

    @functools.cache
    def play(name: str, through: str, aggregation: str):
        folder = tmp_path_factory.mktemp(name) / recorder.TOKEN
        data = recorder.write_data(folder / "data", computation=name)
        elsewhere = through in (*carriers.ELSEWHERE, *engines.ENGINES)
        seed = 5 if elsewhere or simulated(name) else -1
        # The engine's own log names its folder.
        place = folder.parent / "engine" if through in engines.ENGINES else folder
        made = recorded(place, name, through, data=data, seed=seed, aggregation=aggregation)
        if elsewhere:  # the same secrets are drawn in this process, and heard
            twin = recorded(
                folder / "twin", name, "wire", data=data, seed=seed, aggregation=aggregation
            )
            made.secrets = secrets_of_twin(made, twin)
        return made, recorder.data_canaries(data)

    return play


def recorded(folder: Path, name: str, through: str, **given: typing.Any) -> typing.Any:
    """Return the transcript of a run that ends well."""
    made = recorder.record(folder, name, through=through, **given)
    assert made.failed == ""
    return made


def secrets_of_twin(transcript, twin) -> typing.Any:
    """Return what was heard in a run here, which was the same run, message by message."""
    mine, theirs = (
        [{site: reply_document(reply) for site, reply in inbox.items()} for inbox in t.replies]
        for t in (transcript, twin)
    )
    assert mine == theirs
    return twin.secrets


def look(documents: dict[str, bytes], canaries: list) -> scanner.Report:
    looking, report = scanner.Scanner(canaries), scanner.Report()
    for name, content in documents.items():
        report.add(looking.look(name, content))
    return report


def shown(hits: list) -> str:
    """Return one hit of every kind of canary."""
    kinds = {hit.canary.partition("[")[0]: hit for hit in hits}
    return "\n".join(map(str, kinds.values()))


# -- canaries -------------------------------------------------------------------------------------


def check_canaries(transcript, data: list) -> tuple[scanner.Report, scanner.Report]:
    """Nothing of data leaves; nothing hidden lies anywhere, not even in a site's own files."""
    secrets = transcript.secrets
    if simulated(transcript.computation):
        # It shows sums of single sites by design; names, data and keys stay.
        secrets.numbers = []
        secrets.hidden = [c for c in secrets.hidden if c.name.startswith(("key", "entropy"))]
    leaves = look(transcript.documents, [*data, *secrets.numbers, *secrets.hidden])
    assert leaves.hits == [], shown(leaves.hits)
    stays = look(transcript.kept, secrets.hidden)
    assert stays.hits == [], shown(stays.hits)
    return leaves, stays


def check_run(name: str, transcript, data: list, way: str) -> None:
    """Apply every check of one transcript; prints what was scanned."""
    leaves, stays = check_canaries(transcript, data)
    say(
        f"{name} {way}: {leaves.documents + stays.documents} documents, "
        f"{leaves.bytes + stays.bytes} bytes scanned, 0 hits"
    )
    # Kinds, not how many: looks of a comparison are short, and which of them hold three numbers
    # that are not whole hangs on entropy (a count above 10 failed in one run of five).
    kinds = {canary.name.partition("[")[0] for canary in transcript.secrets.numbers}
    assert simulated(name) or kinds >= {"answers of subjects", "sum of a site", "mean of a site"}
    assert len(transcript.secrets.hidden) > 50
    words = transcript.words()
    assert np.unique(words).size == words.size
    if words.size >= ENOUGH:
        check_uniform(words)


ASKED_REMOTE = ("stdin of remote", "frame sent to remote")


@every_way
def test_nothing_that_must_stay_leaves_in_any_encoding(played, name, through, aggregation) -> None:
    """Exact but for accidents, below 1e-6 (see `scanner`); uniform words alarm below 1e-6."""
    transcript, data = played(name, through, aggregation)
    check_run(name, transcript, data, f"{through} {aggregation}")
    if through == "memory":
        return
    config = load(name).config.from_input(helper.settings_of(name, aggregation=aggregation))
    assert check_outputs(name, transcript, config) >= 4 * 5
    if through.startswith(("service", "engine")):
        assert check_frames(transcript, int(through[-1])) >= 2 * len(transcript.outputs)
    # The canaries are right: at home they are found.
    at_home = look(transcript.kept, [*data, *transcript.secrets.numbers])
    found = {hit.canary.partition("[")[0] for hit in at_home.hits}
    assert {"name", "raw values", "working array basis"} & found
    assert any(name.startswith(ASKED_REMOTE) for name in transcript.documents)
    assert transcript.packets >= len(transcript.outputs) or through not in engines.ENGINES


@pytest.mark.parametrize("through", ["wire", pytest.param("service-2", marks=trust)])
def test_connectivity_of_nobody_leaves_in_any_encoding(tmp_path, through) -> None:
    """Outcomes that a site makes of time courses: in no table, and none of the canaries above."""
    data = recorder.write_data(tmp_path / recorder.TOKEN / "data", computation="capecontrast")
    asked = {
        "outcomes": "fnc", "networks": "C01, C02, C03", "min_timepoints": 30, "test": "each",
    }  # fmt: skip
    settings = helper.settings_of("capecontrast", **helper.MATRIX, **asked)
    config, edges = load("capecontrast").config.from_input(settings), []
    for site in sorted(data.iterdir()):
        people = [row[:3, 0] for _, row in FileSource(site, {}, config, site.name).reduced(3)]
        assert len(people) >= 3
        edges += scanner.windows("connectivity", np.array(people))
    transcript = recorded(data.parent, "capecontrast", through, data=data, **helper.MATRIX, **asked)
    leaves, _ = check_canaries(transcript, [*recorder.data_canaries(data), *edges])
    said = f"{leaves.documents} documents, {leaves.bytes} bytes, 0 hits"
    say(f"capecontrast of maps {through}: {said}")
    assert look(transcript.kept, edges).hits  # at home they are found


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == PRODUCT else trust) for n in names()]
)
def test_a_run_that_fails_tells_nothing_either(tmp_path, name) -> None:
    """Working files and one data file are gone in the middle: the error names nothing."""
    check_failing(tmp_path / recorder.TOKEN, name, "wire")


def test_a_run_that_fails_tells_nothing_in_any_frame_of_the_service(tmp_path) -> None:
    """The same where the error goes out as a frame; the log of the service is looked at too."""
    transcript = check_failing(tmp_path / recorder.TOKEN, PRODUCT, "service-2")
    answers = [wire.loads(raw, 2**27) for _, way, raw in transcript.frames if way == "received"]
    assert len(answers) > 10
    assert [frame for frame in answers if frame["type"] != "stdout"] == [
        {"type": "stderr", "data": transcript.failed, "code": 1, "end": True}
    ]
    logged = [content for n, content in transcript.documents.items() if n.startswith("log of")]
    assert any(transcript.failed.encode() in content for content in logged)


def check_failing(folder: Path, name: str, through: str) -> typing.Any:
    calls = []

    def disturb(party: str, inside: Path) -> None:
        calls.append(party)
        if len(calls) == 14:  # after keys and probe
            shutil.rmtree(inside / "work" / "local1" / "cache")
            # A table of people, where there is one; else somebody's file
            min((inside / "data" / "local1").iterdir()).unlink()

    data = recorder.write_data(folder / "data", computation=name)
    canaries = recorder.data_canaries(data)
    seed = 5 if simulated(name) else -1
    transcript = recorder.record(
        folder, name, through=through, data=data, disturb=disturb, seed=seed
    )
    assert transcript.failed.startswith("CAPE-E")
    assert len(calls) >= 14
    check_canaries(transcript, canaries)
    assert any("site-error.txt" in document for document in transcript.kept)
    return transcript


# -- declared fields ------------------------------------------------------------------------------


def configurations(name: str) -> Iterator[typing.Any]:
    made = load(name)
    for changed in ({}, {"aggregation": "secagg"}):
        if allows(name, **changed):
            yield made, made.config.from_input(helper.settings_of(name, **changed))


def floats_of(hint: typing.Any, where: str) -> Iterator[str]:
    """Yield the places of floating-point numbers in a declared type."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    if dataclasses.is_dataclass(hint):
        for field, sub in typing.get_type_hints(hint, include_extras=True).items():
            yield from floats_of(sub, f"{hint.__name__}.{field}")
    elif typing.get_origin(hint) is np.ndarray:
        if not np.issubdtype(typing.get_args(typing.get_args(hint)[1])[0], np.integer):
            yield where
    elif hint is float:
        yield where
    else:
        for sub in typing.get_args(hint):
            yield from floats_of(sub, where)


HEADER_FLOATS = {"SiteCard.tr_low", "SiteCard.tr_high", "FeatureSpace.affine"}
"""What headers of files say, and no voxel: the only floats that a site ever sends."""


@every_computation
def test_a_site_can_send_no_float_made_from_data(name) -> None:
    """By the types of all replies; and a vector is marked as masked, or as a release."""
    # With ``noise=local`` a site may send a function of its own noisy integers, marked as a
    # release.
    for made, config in configurations(name):
        for phase in made.bind(config).phases.values():
            hints = typing.get_type_hints(phase.reply, include_extras=True)
            for field, hint in hints.items():
                (marker,) = (m for m in hint.__metadata__ if isinstance(m, Marker))
                found = set(floats_of(hint, f"{phase.reply.__name__}.{field}"))
                noisy = marker is RELEASED and config.noise == "local"
                assert noisy or found <= HEADER_FLOATS, (phase.name, found)
                if typing.get_origin(hint.__origin__) is np.ndarray:
                    assert marker in (RING, RELEASED), (phase.name, field)
                    assert marker is not PUBLIC


def floats_in(document: typing.Any, where: str = "") -> Iterator[str]:
    """Yield the keys under which a JSON document holds floating-point numbers."""
    if isinstance(document, dict):
        for key, item in document.items():
            yield from floats_in(item, key)
    elif isinstance(document, list):
        for item in document:
            yield from floats_in(item, where)
    elif isinstance(document, float):
        yield where


CACHE = {"head", "model", "nonce", "vault_key"}


def check_outputs(name: str, transcript, config) -> int:
    """Every answer is what the table declares, and nothing else; returns how many there were."""
    made = load(name)
    phases = made.bind(config).phases
    for party, text in transcript.outputs:
        answer = wire.loads(text, 2**27)
        assert set(answer) == {"output", "cache", "success"}
        assert set(answer["cache"]) == {"cape"}
        cache = answer["cache"]["cape"]
        extra = {"request", "kept"} if party == "remote" else set()
        assert CACHE <= set(cache) <= CACHE | extra
        decode_run(made, cache, party=party)
        output = answer["output"]
        if party == "remote":
            if not answer["success"]:
                opened = output["phase"]
                kinds = [p.broadcast for p in phases.values() if opened in p.then]
                assert any(_is(output, kind) for kind in kinds), opened
            continue
        reply = phases[output["phase"]].reply
        envelope = decode_envelope(output, reply, broadcast=False)
        assert wire.dumps(reply_document(envelope)) == wire.dumps(output)
        assert set(floats_in(output)) <= {"tr_low", "tr_high", "affine"}, output["phase"]
    return len(transcript.outputs)


def _is(output: dict, kind: type) -> bool:
    try:
        decode_envelope(output, kind, broadcast=True)
    except Exception:
        return False
    return True


FRAMES = {
    2: ({"mode", "data"}, [{"type", "data", "end"}, {"type", "data", "code", "end"}]),
    1: ({"command", "args"}, [{"type", "data", "end"}, {"type", "end"}, {"type", "code"}]),
}
"""What the two versions of COINSTAC's dialogue have: of a call, and of what is said to it."""


def check_frames(transcript, version: int) -> int:
    """Every frame of a service is one of the dialogue's, and carries an answer or a part of one."""
    call, said = FRAMES[version]
    for party, way, content in transcript.frames:
        if way == "sent":
            frame = wire.loads(content, 2**27) if content else {}
            assert set(frame) in (set(), call, {"input", "cache"}, {"input", "cache", "state"})
            continue
        frame = wire.loads(content, 2**27)
        assert set(frame) in said, (party, sorted(frame))
        if version == 2:
            assert (frame["type"], frame["end"]) == ("stdout", True)
            assert set(frame["data"]) == {"output", "cache", "success"}
        elif frame["type"] == "stderr":
            assert frame.get("data", "") == ""
    return len(transcript.frames)


@every_computation
def test_answers_and_caches_hold_declared_fields_only(played, name) -> None:
    transcript, _ = played(name, "wire", "all-sites")
    config = load(name).config.from_input(helper.settings_of(name))
    assert check_outputs(name, transcript, config) >= 4 * 5


@every_computation
def test_no_key_file_is_left_after_a_run(played, name) -> None:
    """The vault exists while it is needed, sealed, and is gone at the end."""
    transcript, _ = played(name, "wire", "all-sites")
    sealed = [content for n, content in transcript.documents.items() if "/vault-" in n]
    assert sealed
    finals = [n for n in transcript.documents if n.startswith("local0/output/.cape")]
    assert finals
    folder = Path(transcript.folder)
    assert list(folder.rglob("vault-*")) == []
    left = [p for p in folder.rglob(".cape*") if p.is_dir() and any(p.iterdir())]
    assert {p.name for p in left} <= {".cape-site"}  # the site's own key, and those that it met
    for path in (path for p in left for path in p.iterdir()):
        assert path.name.split(".")[0] in ("identity_key", "known_sites")
        assert path.stat().st_mode & 0o777 == 0o600
    assert [p for p in folder.glob("*/cache/*") if p.is_file()] == []


# -- masked words ---------------------------------------------------------------------------------


ENOUGH = 5 * 256 // 8
"""Words that a chi-square test of their bytes needs."""


def check_uniform(words: np.ndarray) -> None:
    """Bytes: chi-square with 255 degrees; bits: normal.  Each alarms with probability 5e-7."""
    raw = words.view(np.uint8)
    assert words.size >= ENOUGH
    counts = np.bincount(raw, minlength=256)
    chi2 = float(((counts - raw.size / 256) ** 2).sum() * 256 / raw.size)
    assert chi2 < stats.chi2.isf(FALSE_ALARM / 2, 255), f"bytes are not uniform: {chi2:.1f}"
    bits = np.unpackbits(raw)
    z = abs(bits.mean() - 0.5) * 2 * math.sqrt(bits.size)
    assert z < stats.norm.isf(FALSE_ALARM / 4), f"bits are not fair: {z:.2f}"


@every_aggregation
def test_masked_words_are_uniform_and_two_runs_on_equal_data_share_none(name, aggregation) -> None:
    """Real entropy.  Alarms below 1e-6 a run; n^2 / 2^64 < 1e-11 for a shared word."""
    words: list[np.ndarray] = []
    while len(words) < 2 or sum(map(len, words)) < ENOUGH:  # some mask their probe only
        seed = len(words) if simulated(name) else None
        run = helper.Consortium(name, seed=seed, aggregation=aggregation).play()
        words.append(recorder.words_of(run.sent))
    both = np.concatenate(words)
    check_uniform(both)
    assert np.unique(both).size == both.size


def bound(n_words: int) -> float:
    """Return the limit of |z| over that many words at a false alarm of 1e-6 in all."""
    # A sum of n terms +-u, u uniform on (-1/2, 1/2), is sub-Gaussian with variance n / 12, so that
    # P(|z| >= t) <= 2 exp(-t^2 / 2) for any n, not only in the limit.
    return math.sqrt(2.0 * math.log(2.0 * n_words / FALSE_ALARM))


def regression(name: str, aggregation: str, n_runs: int, *, whole: bool = False) -> np.ndarray:
    """Return z of every masked word of site local0 against which of two data sets it held."""
    # In the second one every other row has the other sign: means and products turn their signs.
    one = helper.datasets()
    turned = {
        s: [X * (1.0 - 2.0 * (np.arange(len(X)) % 2))[:, None] for X in own]
        for s, own in one.items()
    }
    data = (one, turned)
    sign = np.random.default_rng().permutation(np.repeat([1.0, -1.0], n_runs // 2))
    rows = []
    for i, s in enumerate(sign):
        seed = i if simulated(name) else None
        run = helper.Consortium(name, data[int(s > 0)], seed=seed, aggregation=aggregation)
        while not run.ended:
            run.exchange()
            body = run.sent[-1]["local0"].body
            asked = run.phases()[-1][0]
            if recorder.ring_fields(type(body)) and "zero-sum" not in asked and not whole:
                break
        found = [
            getattr(inbox["local0"].body, field)
            for inbox in run.sent
            for field in recorder.ring_fields(type(inbox["local0"].body))
        ]
        rows.append(np.concatenate(found).astype(np.float64) / 2.0**64 - 0.5)
    shortest = min(map(len, rows))
    return sign @ np.array([row[:shortest] for row in rows]) * math.sqrt(12.0 / n_runs)


def check_regression(z: np.ndarray) -> None:
    assert np.abs(z).max() < bound(z.size), f"masked words follow the data: {np.abs(z).max():.2f}"


@every_aggregation
@pytest.mark.statistical
def test_masked_words_do_not_follow_the_data(name, aggregation) -> None:
    """40 runs up to the first release, two data sets; false alarm below 1e-6."""
    check_regression(regression(name, aggregation, 40))


@every_aggregation
@trust
def test_masked_words_of_whole_runs_do_not_follow_the_data(name, aggregation) -> None:
    """200 whole runs; false alarm below 1e-6."""
    check_regression(regression(name, aggregation, 200, whole=True))


# -- mistakes made on purpose: each must be seen --------------------------------------------------


def without_mask(monkeypatch) -> None:
    monkeypatch.setattr(
        keys, "zero_sum_mask", lambda pairs, label: np.zeros(label.size, dtype=np.uint64)
    )


def test_a_missing_mask_is_seen_by_every_check_of_words(monkeypatch, tmp_path) -> None:
    without_mask(monkeypatch)
    transcript = recorder.record(tmp_path, PRODUCT)
    with pytest.raises(AssertionError, match="not uniform"):
        check_uniform(transcript.words())
    with pytest.raises(AssertionError, match="without mask"):
        check_canaries(transcript, [])
    with pytest.raises(AssertionError, match="follow the data"):
        check_regression(regression(PRODUCT, "all-sites", 40))


def test_a_mask_that_serves_twice_is_seen(monkeypatch, tmp_path) -> None:
    """Without noise, equal masks on equal data are equal words."""
    label = keys.MaskLabel
    monkeypatch.setattr(
        keys, "MaskLabel",
        lambda **given: label(**{**given, "round": 1, "phase": "x", "transcript": bytes(32)}),
    )  # fmt: skip
    run = recorder.record(
        tmp_path, PRODUCT, seed=3, private=False, n_rounds=3, n_looks=2, step_limit=1e-9
    )
    words = run.words()
    assert np.unique(words // 2**40).size < words.size


LEAKS = {
    "key": ("transfer/cache.json", lambda key: json.dumps({"k": key.hex()}).encode()),
    "noise": ("output/private/n.csv", lambda g: ",".join(map(str, g.tolist())).encode()),
    "working array": ("transfer/a.npz", lambda array: packed(array)),
    "mean of a site": ("transfer/reply.json", lambda mean: json.dumps(mean.tolist()).encode()),
    "name": ("transfer/log.txt", lambda key: f"cannot read sub-{recorder.TOKEN}00".encode()),
}


def packed(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.savez_compressed(held, array)
    return held.getvalue()


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_seen_wherever_it_is(leak, tmp_path) -> None:
    """Planted into a run through documents: the check of canaries turns red."""
    folder = tmp_path / recorder.TOKEN
    place, write = LEAKS[leak]

    def heard(what: str, value: object) -> None:
        if what == ("key" if leak == "name" else leak):
            (folder / "work" / "local0" / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / "work" / "local0" / place).write_bytes(write(value))

    transcript = recorder.record(folder, "capemean", through="wire", heard=heard, mean_share=0.5)
    with pytest.raises(AssertionError, match=leak):
        check_canaries(transcript, recorder.data_canaries(folder / "data"))


def test_a_float_in_a_reply_is_seen() -> None:
    assert list(floats_in({"body": {"total": [1, 2.5]}})) == ["total"]
    assert list(floats_of(tuple[float, ...], "x")) == ["x"]
    assert list(floats_of(typing.Mapping[str, np.typing.NDArray[np.float32]], "y")) == ["y"]
