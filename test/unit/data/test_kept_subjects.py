"""Reduced data are read once, kept without names, believed only while nothing changed."""

import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cape import array_file
from cape.data import data_store, kept_subjects, pipeline, subjects
from cape.data.data_store import DataStore
from cape.data.pipeline import inspect_site as inspect
from cape.data.pipeline import load_site as load
from cape.data.resources import jobs
from cape.data.runs import Person, SiteRun
from cape.errors import CapeError
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace

CONFIG = Config(epsilon=1.0, delta=1e-5, n_basis=6, min_timepoints=5, confounds="csf", mask="file")
AFFINE = np.diag([8.0, 8, 8, 1])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Four subjects, one without signal, one with two runs; tables whose first row is empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    inside = np.ones((6, 7, 6), dtype=np.uint8)
    nib.Nifti1Image(inside, AFFINE).to_filename(folder / "mask.nii.gz")
    rng = np.random.default_rng(8)
    for name in ("ann_run-1", "ann_run-2", "bob_run-1", "dead_run-1", "eve_run-1"):
        values = rng.normal(900, 30, (6, 7, 6, 14)).astype(np.float32)
        values *= name != "dead_run-1"
        image = nib.Nifti1Image(values, AFFINE)
        image.header.set_xyzt_units("mm", "sec")
        image.header["pixdim"][4] = 2.0
        image.to_filename(folder / f"sub-{name}_bold.nii.gz")
        cells = ["csf", "n/a", *(f"{v:.4f}" for v in rng.standard_normal(13))]
        table = folder / f"sub-{name}_desc-confounds_timeseries.tsv"
        table.write_text("\n".join(cells) + "\n")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store; files that were just written are believed as old ones are."""
    monkeypatch.setattr(array_file, "SETTLED", -10.0)
    return tmp_path / "cache"


def opened(read, base, listing=None, config=CONFIG, *, cache=None, **named):
    store = None if cache is None else DataStore.open(cache)
    return read(base, listing or {}, config, store=store, **{"site": "B", **named})


inspect_site, load_site = partial(opened, inspect), partial(opened, load)


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "entries").iterdir())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs of which more than a header was read, since the list was cleared."""
    seen: list[str] = []
    whole = subjects.read_run

    def noted(run, *given, **named):
        if not named.get("headers_only"):
            seen.append(run.name)
        return whole(run, *given, **named)

    monkeypatch.setattr(subjects, "read_run", noted)
    return seen


def told(loaded) -> tuple[object, ...]:
    site, reduced = loaded
    return site, [(label, Y.tobytes(), Y.shape, Y.dtype) for label, Y in reduced]


def test_a_second_run_of_a_study_reads_nothing_and_finds_the_same(base, cache, reads):
    first = told(load_site(base, cache=cache))
    assert len(reads) == 5
    reads.clear()
    assert told(load_site(base, {}, replace(CONFIG, epsilon=2.0), cache=cache)) == first
    assert told(load_site(base, cache=cache)) == first
    assert reads == []
    assert told(load_site(base)) == first
    assert len(reads) == 5
    assert {f.code for f in first[0].findings} == {"CAPE-W123", "CAPE-W127", "CAPE-W137"}


def test_what_validate_read_a_run_does_not_read_again(base, cache, reads):
    """Each site read its files once in validate, and once more in join."""
    (base / "sub-dead_run-1_bold.nii.gz").unlink()
    found = inspect_site(base, cache=cache)
    reads.clear()
    site, _ = load_site(base, cache=cache)
    assert reads == []
    assert site == found.accepted
    assert inspect_site(base, headers_only=True, cache=cache).accepted is not None
    assert reads == []  # headers are


def test_what_another_program_read_is_read_again(base, cache, reads, monkeypatch):
    load_site(base, cache=cache)
    monkeypatch.setattr(kept_subjects, "program_digest", lambda: "another")
    reads.clear()
    load_site(base, cache=cache)
    assert len(reads) == 5
    assert len(entries(cache)) == 4  # in the place of those of the program before


def test_a_second_check_builds_no_basis(base, cache, reads, monkeypatch):
    first = inspect_site(base, cache=cache)
    monkeypatch.setattr(kept_subjects, "public_basis", pytest.fail)
    reads.clear()
    second = inspect_site(base, cache=cache)
    assert (second.subjects, second.findings) == (first.subjects, first.findings)
    assert reads == []
    # Nor does one that keeps nothing.
    assert len(inspect_site(base).subjects) == 4


# --------------------------------------------------------------- is a file what it was?

IMAGE, TABLE = "sub-{}_run-1_bold.nii.gz", "sub-{}_run-1_desc-confounds_timeseries.tsv"


def times_back(path: Path, before: os.stat_result) -> None:
    """Set those times back that a program can set."""
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def written_anew(base: Path) -> Path:
    """Other bytes of the same size, at the old time."""
    path = base / TABLE.format("eve")
    before, text = path.stat(), path.read_text()
    path.write_text(text[:-3] + ("1" if text[-3] != "1" else "2") + text[-2:])
    times_back(path, before)
    assert path.stat().st_size == before.st_size
    return base


def swapped(base: Path) -> Path:
    """The files of two people under each other's names, as old as they were."""
    for name in (IMAGE, TABLE):
        a, b = base / name.format("bob"), base / name.format("eve")
        before = a.stat()
        for path in (a, b):
            times_back(path, before)
        a.rename(base / "x")
        b.rename(a)
        (base / "x").rename(b)
    return base


def led_elsewhere(base: Path) -> Path:
    """A link in place of a file, as programs that keep versions of data make them."""
    image, other = base / IMAGE.format("bob"), base / ".versions" / "1"
    other.parent.mkdir()
    shutil.copy2(base / IMAGE.format("ann"), other)
    image.unlink()
    image.symlink_to(other)
    return base


def renamed(base: Path) -> Path:
    for name in (IMAGE, TABLE):
        (base / name.format("eve")).rename(base / name.format("zoe"))
    return base


def touched(base: Path) -> Path:
    (base / IMAGE.format("bob")).touch()
    return base


def told_more(base: Path) -> Path:
    (base / "sub-ann_run-1_bold.json").write_text('{"RepetitionTime": 3.0}')
    return base


def copied(base: Path) -> Path:
    return Path(shutil.copytree(base, base.with_name("copy")))


def moved(base: Path) -> Path:
    return base.rename(base.with_name("moved"))


@pytest.mark.parametrize(
    ("change", "read_again"),
    [
        (written_anew, "eve"), (swapped, "bob eve"), (led_elsewhere, "bob"), (renamed, "zoe"),
        (touched, "bob"), (told_more, "ann"), (copied, "ann bob dead eve"),
        (moved, "ann bob dead eve"),
    ],
)  # fmt: skip
def test_whatever_happens_to_files_the_store_gives_what_they_hold(
    base, cache, reads, change, read_again
):
    load_site(base, cache=cache)
    time.sleep(0.05)  # some kernels' clock of files ticks every 10 ms
    base = change(base)
    now = told(load_site(base))
    reads.clear()
    assert told(load_site(base, cache=cache)) == now
    assert {name[4:].partition("_")[0] for name in reads} == set(read_again.split())
    reads.clear()
    assert told(load_site(base, cache=cache)) == now
    assert reads == []
    # What was made of a file that changed is gone.
    others = {"renamed": 1, "copied": 4, "moved": 4}
    assert len(entries(cache)) == 4 + others.get(change.__name__, 0)


def test_what_a_list_says_of_a_run_is_part_of_what_was_read(base, cache, reads):
    table, rows = base / "people.csv", "participant_id,file,confounds,n_dummy"
    for n_dummy, n_read in ((0, 1), (2, 1), (2, 0)):
        row = f"eve,{IMAGE.format('eve')},{TABLE.format('eve')},{n_dummy},0"
        others = "".join(
            f"{path.name[4:8].strip('_')},{path.name},,,1\n"
            for path in sorted(base.glob("sub-*.nii.gz"))
            if "eve" not in path.name
        )
        table.write_text(f"{rows},exclude\n{row}\n{others}")
        reads.clear()
        load_site(base, {"manifest": "people.csv"}, CONFIG, cache=cache)
        assert len(reads) == n_read


def test_two_people_whose_folders_swap_names_are_told_apart(tmp_path, cache, monkeypatch):
    """Unpacked in one tick of the clock, their files differ in no time; no rename touches them."""
    stamps = kept_subjects.stamp_of
    monkeypatch.setattr(kept_subjects, "stamp_of", lambda found: (*stamps(found)[:2], 0, 0))
    how, store = resolve(CONFIG), DataStore.open(cache)
    space = FeatureSpace.of_labels("mask", np.ones((2, 2, 2), dtype=np.int32), AFFINE)
    kept = kept_subjects.KeptSubjects(store, how, space)
    person = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "rest.nii"
        path.write_text(name)
        person[name] = Person(label=name, runs=(SiteRun(path=path, name=path.name),))
    before = {name: kept.look(files).key for name, files in person.items()}
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        (tmp_path / old).rename(tmp_path / new)
    after = {name: kept.look(files).key for name, files in person.items()}
    assert {before["a"], before["b"]}.isdisjoint(after.values())


def test_a_file_that_just_changed_is_neither_kept_nor_believed(base, cache, reads, monkeypatch):
    """Within one tick of a clock a file may change twice and keep its times."""
    load_site(base, cache=cache)
    monkeypatch.setattr(array_file, "SETTLED", 1e9)
    reads.clear()
    load_site(base, cache=cache)
    assert len(reads) == 5
    load_site(base, {}, replace(CONFIG, detrend="none"), cache=cache)
    assert len(entries(cache)) == 4


def test_a_file_that_changes_while_it_is_read_is_not_kept(base, cache, monkeypatch):
    whole = pipeline.read_subject

    def changing(files, *given, **named):
        found = whole(files, *given, **named)
        if files.label == "sub-eve":
            (base / IMAGE.format("eve")).touch()
        return found

    time.sleep(0.05)
    monkeypatch.setattr(pipeline, "read_subject", changing)
    load_site(base, cache=cache)
    assert len(entries(cache)) == 3


# ------------------------------------------------------------- whose entries are removed


def test_one_person_or_one_folder_is_forgotten_and_counted(base, cache, reads, tmp_path):
    """Also once the files are gone: that is when it matters."""
    (tmp_path / "study").mkdir()
    (tmp_path / "link").symlink_to("study")
    base = base.rename(tmp_path / "study" / "local0")
    other = Path(shutil.copytree(base, tmp_path / "study" / "local1"))
    for folder in (tmp_path / "link" / "local0", other):
        load_site(folder, cache=cache)
    store = DataStore.open(cache)
    assert store.size()[0] == 8
    shutil.rmtree(base)
    assert store.size("sub-bob") == store.size("bob") == store.clear("bob")
    assert store.clear("nobody") == store.clear(str(tmp_path / "stud")) == (0, 0)
    assert store.size()[0] == 6
    (at_zero := tmp_path / "study" / "local0").mkdir()
    assert store.size(str(tmp_path / "link" / "local0")) == store.size(str(at_zero))
    assert store.clear(str(at_zero))[0] == 3
    reads.clear()
    load_site(other, cache=cache)
    assert [name.partition("_")[0] for name in reads] == ["sub-bob"]
    store.put("a basis", "", [np.ones(3)])
    entries(cache)[0].write_bytes(b"damaged: nobody can tell whose")
    assert store.clear(str(tmp_path))[0] == 4
    assert store.size()[0] == 1
    assert store.clear()[0] == 1
    assert store.size() == (0, 0)


def test_who_is_stopped_keeps_what_was_read(base, cache, reads, monkeypatch):
    monkeypatch.setenv("CAPE_JOBS", "1")

    def stop(done, of):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect_site(base, on_subject=stop, cache=cache)
    reads.clear()
    inspect_site(base, cache=cache)
    assert [name.partition("_")[0] for name in reads] == ["sub-dead", "sub-eve"]


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other", "header"])
def test_a_damaged_entry_is_read_again(base, cache, reads, damage):
    first = told(load_site(base, cache=cache))
    kept = {path: path.read_bytes() for path in entries(cache)}
    others = [*list(kept.values())[1:], *list(kept.values())[:1]]
    for (path, content), other in zip(kept.items(), others, strict=True):
        changed = {
            "cut": content[:-4],
            "bit": content[:-1] + bytes([content[-1] ^ 1]),
            "empty": b"",
            "other": other,
            "header": content.replace(b"{", b"(", 1),
        }
        path.write_bytes(changed[damage])
    reads.clear()
    assert told(load_site(base, cache=cache)) == first
    assert len(reads) == 5


def test_entries_hold_no_name_and_are_this_users_alone(base, cache):
    load_site(base, {}, CONFIG, site="hospital-north", cache=cache)
    assert len(entries(cache)) == 4
    for path in (cache, *cache.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
        whole = path.name.encode() + (b"" if path.is_dir() else path.read_bytes())
        for name in (b"ann", b"bob", b"eve", b"sub-", b"run-", b"hospital", b".nii"):
            assert name not in whole


def test_a_text_with_a_name_is_not_kept(base, cache, reads, monkeypatch):
    whole = subjects.read_run

    def telling(run, *given, **named):
        series = whole(run, *given, **named)
        note = replace(series.issues[0], observed=f"beside {run.path.name}")
        return replace(series, issues=(note,))

    monkeypatch.setattr(subjects, "read_run", telling)
    load_site(base, cache=cache)
    assert entries(cache) == []


@pytest.mark.parametrize("how", ["group", "link", "file"])
def test_a_folder_that_others_may_write_is_neither_believed_nor_used(base, cache, reads, how):
    load_site(base, cache=cache)
    if how == "group":
        cache.chmod(0o770)
    else:
        cache.rename(cache.with_name("moved"))
        if how == "link":
            cache.symlink_to(cache.with_name("moved"))
        else:
            cache.write_text("")
    reads.clear()
    load_site(base, cache=cache)
    assert len(reads) == 5


# ------------------------------------------------------------------------------- in parallel


@pytest.mark.parametrize("n_jobs", [2, 3, 9])
def test_several_at_a_time_give_what_one_at_a_time_gives(base, monkeypatch, n_jobs):
    monkeypatch.setenv("CAPE_JOBS", "1")
    alone = told(load_site(base))
    monkeypatch.setenv("CAPE_JOBS", str(n_jobs))
    assert told(load_site(base)) == alone
    done = []
    inspect_site(base, on_subject=lambda n, of: done.append((n, of)))
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_blas_has_one_thread_inside_those_that_read(base, monkeypatch):
    """In a shell that says nothing of threads, reading took four times the processor time."""
    monkeypatch.setenv("CAPE_JOBS", "2")
    whole, inside = pipeline.read_subject, set()

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    def noted(*given, **named):
        if not named["headers_only"]:
            inside.update(threads())
        return whole(*given, **named)

    monkeypatch.setattr(pipeline, "read_subject", noted)
    with threadpool_limits(2, "blas"):
        before = threads()
        load_site(base)
        assert threads() == before
    assert inside == {1}


def test_the_first_subject_does_not_keep_the_others_waiting(base, monkeypatch):
    """It was read alone, to learn how much memory one takes: its header says that."""
    monkeypatch.setenv("CAPE_JOBS", "2")
    whole, met = subjects.read_run, threading.Barrier(2)

    def together(run, *given, **named):
        first = run.name.startswith(("sub-ann_run-1", "sub-bob_run-1"))
        if first and not named.get("headers_only"):
            met.wait(timeout=30)  # BrokenBarrierError where the other one never comes
        return whole(run, *given, **named)

    monkeypatch.setattr(subjects, "read_run", together)
    site, _ = load_site(base)
    assert {"sub-ann", "sub-bob"}.isdisjoint(site.failed)


@pytest.mark.parametrize("n_jobs", ["1", "3"])
def test_a_basis_that_could_not_be_built_is_not_taken_for_the_identity(
    base, cache, monkeypatch, n_jobs
):
    """Without memory for it everybody's voxels went on in its place, and into the cache."""
    monkeypatch.setenv("CAPE_JOBS", n_jobs)

    def broken(*_):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(kept_subjects, "public_basis", broken)
        with pytest.raises((MemoryError, CapeError)):
            load_site(base, cache=cache)
    assert not entries(cache)
    _, reduced = load_site(base, cache=cache)
    assert [len(Y) for _, Y in reduced] == [6, 6, 6, 6]


def test_who_stops_does_not_wait_for_those_that_have_not_begun(base, monkeypatch):
    """All but the first read on until the pool is told to stop: no clock decides."""
    monkeypatch.setenv("CAPE_JOBS", "2")
    begun, told, whole = [], threading.Event(), pipeline.read_subject

    def slow(files, *given, headers_only):
        if not headers_only:
            begun.append(files.label)
            assert files.label == "sub-ann" or told.wait(timeout=30)
        return whole(files, *given, headers_only=headers_only)

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, **how):
            super().shutdown(wait=False, **how)
            told.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(pipeline, "read_subject", slow)
    monkeypatch.setattr(pipeline, "ThreadPoolExecutor", Pool)

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_site(base, on_subject=stop)
    assert "sub-eve" not in begun


def test_one_subject_at_a_time_where_memory_holds_no_more(base, monkeypatch):
    from cape.data import resources

    monkeypatch.setenv("CAPE_JOBS", "4")
    known, jobs = [], resources.jobs
    monkeypatch.setattr(resources, "free_memory", lambda: 1)
    monkeypatch.setattr(resources, "jobs", lambda n: known.append(n) or jobs(n))
    load_site(base)
    assert known[0] == 0
    assert known[1] > 1000
    assert jobs(known[1]) == 1


def test_a_header_that_breaks_the_program_stops_nobody(base, monkeypatch):
    monkeypatch.setenv("CAPE_JOBS", "2")
    whole = subjects.read_run

    def broken(run, *given, **named):
        if named.get("headers_only"):
            raise RuntimeError("a bug")
        return whole(run, *given, **named)

    monkeypatch.setattr(subjects, "read_run", broken)
    site, _ = load_site(base)
    assert site.failed == ("sub-dead",)


def test_an_error_of_one_subject_fails_this_subject_alone(base, monkeypatch):
    monkeypatch.setenv("CAPE_JOBS", "3")

    def broken(files, *given, **named):
        if files.label == "sub-bob":
            raise RuntimeError("a bug")
        return whole(files, *given, **named)

    whole = pipeline.read_subject
    monkeypatch.setattr(pipeline, "read_subject", broken)
    site, reduced = load_site(base)
    assert site.failed == ("sub-bob", "sub-dead")
    assert [(label, Y.shape[1]) for label, Y in reduced] == [
        ("sub-ann", 28), ("sub-bob", 0), ("sub-dead", 0), ("sub-eve", 14),
    ]  # fmt: skip
    assert any("sub-bob: RuntimeError: a bug" in f.private for f in site.findings)


def test_jobs_use_all_processors_and_fit_into_memory(monkeypatch):
    from cape.data import resources

    monkeypatch.delenv("CAPE_JOBS", raising=False)
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(resources, "free_memory", lambda: 0)
    assert jobs(10) == 8
    monkeypatch.setattr(resources, "free_memory", lambda: 1000)
    assert (jobs(100), jobs(300), jobs(5000), jobs(0)) == (5, 1, 1, 8)
    monkeypatch.setenv("CAPE_JOBS", "3")
    assert (jobs(10), jobs(400)) == (3, 1)
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setenv("CAPE_JOBS", "")
    assert jobs(10) == 1


def test_another_scipy_may_round_otherwise(monkeypatch):
    """Turned and smoothed images go through it: a store outlives an upgrade."""
    data_store.program_digest.cache_clear()
    before = data_store.program_digest()
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"other {name}")
    data_store.program_digest.cache_clear()
    try:
        assert data_store.program_digest() != before
    finally:
        data_store.program_digest.cache_clear()
