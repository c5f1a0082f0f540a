"""``cape validate``: everything that is wrong, in one go, with what to do about it."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

import cape
from cape.cli import main
from cape.data.pipeline import SiteData
from cape.data.space import MASKS
from cape.errors import ConfigError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.site.ledger_file import LifetimeLedgerFile
from cape.site.policy import load_policy
from support import consortium as helper
from support import spending
from support.defects import DEFECTS
from support.ledger_model import cost

PLANTED = {
    "empty": "CAPE-E107", "text_as_nii": "CAPE-E109", "truncated_gz": "CAPE-E110",
    "three_d": "CAPE-E112", "wrong_grid": "CAPE-E117", "shifted_affine": "CAPE-E119",
    "too_short": "CAPE-E129",
}  # fmt: skip


@pytest.fixture(scope="module")
def consortium(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("validate") / "plan"
    write_consortium(folder, Request(site_sizes=(14, 4, 3), n_timepoints=20, n_networks=3))
    return folder


@pytest.fixture
def plan(consortium, tmp_path) -> Path:
    return shutil.copytree(consortium, tmp_path / "plan")


def documents(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_consortium_that_fits_is_ready_with_a_table_its_needs_and_exit_0(plan, typed):
    printed = typed("validate", str(plan))
    assert "reading people" not in printed.out
    text = printed.out
    assert text.rstrip().endswith("READY: 21 subjects, 1 warning")
    for part in (
        "space MNI152-10mm | 3 components | TR 2 s | epsilon and delta not given",
        "sub-001", "coverage", "100 %", "reoriented",
        "mask 21 x 25 x 20 with 1876 features, hash 6a12fccd0e56b721; 14 subjects, 0 fail and",
        " MB of memory (", " MB of disk (", "handshake of the sites: they fit",
    ):  # fmt: skip
        assert part in text, part


def test_the_mask_hash_that_is_printed_is_one_that_the_setting_takes(plan, typed):
    """It printed 16 digits, which were refused, as was what the manual told the owner to set."""
    site = plan / "local0"
    shutil.copy(MASKS / "MNI152-10mm.nii.gz", site / "mask.nii.gz")
    words = ["validate", str(site), "--fast", "--set", "mask=file"]
    printed = re.search(r"mask_hash (\w{64});", typed(*words).out)
    assert printed
    of_file = hashlib.sha256((site / "mask.nii.gz").read_bytes()).hexdigest()
    for pinned in (printed[1], of_file):
        typed(*words, "--set", f"mask_hash={pinned}")
    assert "CAPE-E124" in typed(*words, "--set", f"mask_hash={of_file[::-1]}", code=1).out


@pytest.mark.parametrize("name", ["file", "mask_space-MNI152NLin6Asym.nii.gz"])
def test_a_mask_of_the_sites_with_its_hash_goes_through_every_command(plan, typed, tmp_path, name):
    """Planners put a bundled mask in its place, and held that against the owner's hash: E124.

    Of a mask with a name of its own they looked for the file, where no site is at hand: E101.
    """
    mask = MASKS / "MNI152-10mm.nii.gz"
    for site in plan.glob("local*"):
        shutil.copy(mask, site / ("mask.nii.gz" if name == "file" else name))
    hashed = hashlib.sha256(mask.read_bytes()).hexdigest()
    owner = {"mask": name, "mask_hash": hashed, "epsilon": 8, "delta": 1e-5, "n_sites": 3}
    asked = tmp_path / "asked.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in owner.items()]
    asked.write_text("\n".join(['computation = "capegica"', *lines, "n_components = 3"]))
    people = ("--subjects", "300")
    typed("settings", str(asked), "--out", str(tmp_path / "full.json"), *people)
    assert "Will it work?" in typed("budget", "--settings", str(asked), *people).out
    typed("flare", "job", str(tmp_path / "job"), "--settings", str(asked), *people)
    chosen = [f"--set={key}={owner[key]}" for key in ("mask", "mask_hash")]
    assert "READY: 21 subjects" in typed("validate", str(plan), *chosen).out
    run = ["simulate", str(plan), "--out", str(tmp_path / "out"), "--set=private=false", "--quiet"]
    typed(*run, "--set=accept_low_quality=true", *chosen)
    # The owner's hash still counts where the mask is: at the sites
    other = f"--set=mask_hash={hashed[::-1]}"
    assert "CAPE-E124" in typed("validate", str(plan), chosen[0], other, code=1).out
    run[3] += "2"
    assert "CAPE-E124" in typed(*run, chosen[0], other, code=1).err


def test_fast_looks_at_headers_and_tables_only_and_says_so(plan, typed):
    data = sorted((plan / "local0").glob("sub-*.nii.gz"))
    content = data[0].read_bytes()
    data[0].write_bytes(content[: len(content) - 100])  # what only reading to the end can find
    for path in data[1:3]:
        DEFECTS["three_d"]([path])
    text = typed("validate", str(plan / "local0"), "--fast", code=1).out
    assert "CAPE-E112" in text
    assert "CAPE-E110" not in text
    assert "Only headers and tables were read." in text
    assert "MB free); reading was not timed" in text  # tables may have been read: not headers alone
    for path in data[1:3]:
        path.unlink()
    last = typed("validate", str(plan / "local0"), "--fast").out.rstrip().splitlines()[-1]
    assert last == "READY as far as headers and tables tell: 12 subjects, 0 warnings"
    lines = documents(typed("validate", str(plan), "--fast", "--json").out)
    assert lines[-1]["headers_only"] is True
    assert {row["coverage"] for row in lines[-2]["subjects"]} == {"-"}
    text = typed("validate", str(plan / "local0")).out
    assert "CAPE-W110" in text
    last = text.rstrip().splitlines()[-1]
    assert last == "READY: 12 subjects, 1 of whom counts as zeros, 1 warning"


def test_who_adds_nothing_to_a_comparison_is_a_zero_on_every_line(plan, typed, monkeypatch):
    """The first line said 19 of 22, the table "ok" of two of them, the last line 1 of 22."""
    zeros = {"sub-014": "no outcome", "sub-012": "no outcome"}
    monkeypatch.setattr(SiteData, "adding_nothing", lambda *_, **__: zeros)
    lines = documents(typed("validate", str(plan / "local0"), "--json").out)
    verdicts = {row["subject"]: row["verdict"] for row in lines[-2]["subjects"]}
    assert zeros.keys() <= verdicts.keys()
    assert {who for who, verdict in verdicts.items() if verdict != "ok"} == zeros.keys()
    n = len(verdicts)
    first, *_, last = typed("validate", str(plan / "local0")).out.rstrip().splitlines()
    assert first == f"{n - 2} of {n} people count (2: no outcome)."
    assert last.startswith(f"READY: {n} subjects, 2 of whom count as zeros, ")


def test_in_python_the_findings_are_those_of_the_command(plan, capsys):
    for path in sorted((plan / "local0").glob("sub-*"))[:2]:
        DEFECTS["three_d"]([path])
    main(["validate", str(plan), "--json"])
    lines = documents(capsys.readouterr().out)
    told = [f["text"] for line in lines if line["event"] == "site" for f in line["findings"]]
    found = cape.validate(plan)
    assert [finding.private for finding in found] == told
    (worst,) = (finding for finding in found if finding.severity == "E")
    assert (worst.code, worst.public.split()[0]) == ("CAPE-E112", "CAPE-E100")
    fast = cape.validate(plan / "local1", settings={"min_timepoints": 1000}, fast=True)
    assert "CAPE-E129" in {finding.code for finding in fast}
    with pytest.raises(ConfigError):
        cape.validate(plan, settings={"min_timepoint": 1000})


def test_seven_planted_problems_are_all_found_at_once_with_their_remedies(plan, typed):
    files = sorted((plan / "local0").glob("sub-*"))
    for name, path in zip(PLANTED, files, strict=False):
        DEFECTS[name]([path])
    lines = documents(typed("validate", str(plan / "local0"), "--json", code=1).out)
    progress = [line for line in lines if line["event"] == "progress"]
    assert [line["done"] for line in progress] == list(range(1, 15))
    site = next(line for line in lines if line["event"] == "site")
    found = {finding["code"]: finding for finding in site["findings"] if finding["severity"] == "E"}
    assert set(found) == set(PLANTED.values())
    for name, path in zip(PLANTED, files, strict=False):
        text = found[PLANTED[name]]["text"]
        assert path.name.split("_")[0] in text
        assert " Fix: " in text
    unreadable = [row for row in site["subjects"] if row["verdict"] == "not readable"]
    assert len(site["subjects"]) == 14
    assert len(unreadable) == 6
    assert lines[-1] == {
        "event": "result", "ready": False, "subjects": 0, "errors": 7,
        "warnings": lines[-1]["warnings"], "handshake": [], "compared": [], "headers_only": False,
    }  # fmt: skip


def test_what_others_would_read_names_nothing(plan, capsys):
    for label in ("sub-001", "sub-002"):
        (plan / "local0" / f"{label}_task-rest_bold.nii.gz").write_bytes(b"\x1f\x8b")
    assert main(["validate", str(plan), "--json"]) == 1
    for line in documents(capsys.readouterr().out):
        for finding in line.get("findings", ()):
            assert "sub-001" not in finding["public"]
            assert str(plan) not in finding["public"]


def test_a_policy_that_cannot_be_used_is_that_of_the_site_that_was_named(plan, tmp_path, capsys):
    """It said "of site  cannot be used" without --site."""
    policy = tmp_path / "site-policy.toml"
    policy.write_text("veeto = true\n")
    words = ["validate", str(plan / "local2"), "--policy", str(policy)]
    assert main(words) == 2
    assert "the site policy of site local2 cannot be used" in capsys.readouterr().err
    assert main([*words, "--site", "here"]) == 2
    assert "the site policy of site here cannot be used" in capsys.readouterr().err


def test_one_site_finds_the_settings_beside_it_and_a_policy_may_refuse(plan, tmp_path, typed):
    assert main(["validate", str(plan / "local2"), "--quiet"]) == 0
    policy = tmp_path / "site-policy.toml"
    policy.write_text("min_subjects = 4\n")
    text = typed("validate", str(plan / "local2"), "--policy", str(policy), code=3).out
    assert "CAPE-E153 Site local2 is below its own minimum of subjects; see min_subjects" in text
    assert "3 listed subjects, min_subjects=4" in text
    # Without noise there is no budget to give; as text on the command line it counted as missing,
    # and the policy was not asked.
    policy.write_text("min_subjects = 1\n")
    private = ["--policy", str(policy), "--set", "private=false"]
    text = typed("validate", str(plan / "local2"), *private, code=3).out
    assert "CAPE-E260" in text
    assert "epsilon and delta not given" not in text
    policy.write_text("max_run = [[0.5, 1e-5]]\n")
    given = ["--policy", str(policy), "--set", "epsilon=1", "--set", "delta=1e-5"]
    assert "CAPE-E154" in typed("validate", str(plan / "local2"), *given, code=3).out


def test_files_are_named_by_list_pattern_manifest_or_bids(plan, tmp_path, capsys, monkeypatch):
    settings = plan / "settings.toml"
    monkeypatch.chdir(plan / "local2")
    names = sorted(path.name for path in (plan / "local2").glob("sub-*"))
    assert main(["validate", str(settings), "--data", names[0], "--data", names[1], "--quiet"]) == 3
    assert main(["validate", str(settings), "--data", "sub-*.nii.gz", "--quiet"]) == 0
    assert "READY: 3 subjects" in capsys.readouterr().out
    table = plan / "local2" / "own.csv"
    table.write_text(
        "\n".join(
            ["file,participant_id,exclude", *(f"{n},{n[4:7]},0" for n in names), "gone.nii.gz,9,1"]
        )
    )
    assert main(["validate", str(settings), "--manifest", str(table), "--quiet"]) == 0
    assert main(["validate", str(settings), "--bids", str(plan / "local2"), "--quiet"]) == 0
    assert main(["validate", str(settings), "--bids", ".", "--manifest", str(table)]) == 2


def test_a_table_is_written_on_request_and_strict_counts_warnings(plan, tmp_path):
    out = tmp_path / "private" / "checks.tsv"
    assert main(["validate", str(plan / "local1"), "--out", str(out), "--quiet"]) == 0
    lines = out.read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["site", "subject", "runs"]
    assert lines[1].split("\t")[0] == "local1"
    assert lines[-2].startswith("# CAPE-W120")
    assert lines[-1].startswith("#     sub-")  # the fourth, which the line does not name
    assert main(["validate", str(plan / "local1"), "--strict", "--quiet"]) == 1


def test_differences_between_sites_come_from_the_handshake(plan, typed):
    for path in (plan / "local1").glob("sub-*"):
        path.unlink()
    text = typed("validate", str(plan), "--set", "min_sites=3", code=1).out
    assert "CAPE-E104" in text
    # "they fit" was said of all, while a site without data had not been compared.
    assert "handshake of the sites: local0, local2 fit; not compared: local1, see above" in text
    shutil.rmtree(plan / "local1")
    text = typed("validate", str(plan), code=1).out
    assert "CAPE-E152 2 sites joined, but n_sites is 3" in text
    assert "NOT READY: 1 error" in text


def test_settings_that_cannot_be_are_refused_before_a_file_is_opened(plan, tmp_path, typed):
    assert "CAPE-E011" in typed("validate", str(plan), "--set", "confounds=motion7", code=2).err
    bad = tmp_path / "settings.toml"
    bad.write_text("n_components = \n")
    assert main(["validate", str(plan / "local0"), "--settings", str(bad)]) == 2


def test_maps_that_a_run_would_need_are_named_by_their_digest(tmp_path, capsys) -> None:
    data = helper.write_data(tmp_path / "data")
    settings = helper.settings_of("capedualreg", n_sites=3)
    chosen = [f"--set={name}={value}" for name, value in settings.items()]
    said = ["--set=computation=capedualreg", *chosen]
    main(["validate", str(data), *said])
    digest = helper.templated().digest
    assert f'site-policy.toml has public_maps = ["{digest}"]' in capsys.readouterr().out


@pytest.mark.parametrize("line", ['public_counts = ["dx"]', 'ledger_file = "none"'])
def test_a_policy_beside_the_data_is_said_to_forbid_only(tmp_path, capsys, line) -> None:
    """Counts that the file allows were refused as if it were not there."""
    folder = shutil.copytree(
        Path(__file__).parents[3] / "compspecs/capecontrast/test/input/local0/simulatorRun",
        tmp_path / "local0",
    )
    policy = folder / "site-policy.toml"
    policy.write_text(line + "\n")
    (tmp_path / "settings.toml").write_text(
        'computation = "capecontrast"\nvariables = "dx control/patient"\nformula = "dx"\n'
        'outcomes = "hippocampus 2500:5500"\npublic = "dx"\nn_sites = 3\nepsilon = 4\ndelta = 1e-5'
    )
    assert main(["validate", str(folder), "--fast"]) != 0
    said = capsys.readouterr()
    assert "give it with --policy" in " ".join((said.out + said.err).split())
    main(["validate", str(folder), "--policy", str(policy), "--fast"])
    said = capsys.readouterr()
    assert "give it with --policy" not in " ".join((said.out + said.err).split())


def test_a_policy_in_the_data_is_one_with_the_same_file_under_policy(plan, typed, tmp_path):
    """A simulation calls its ledger by a whole path, so that one file was two policies: E266."""
    policy, ledger = plan / "local0/site-policy.toml", tmp_path / "ledger.jsonl"
    policy.write_text('ledger_file = "../../ledger.jsonl"\nallow_local_noise = true\n')
    run = ("simulate", str(plan), "--out", str(tmp_path / "out"), "--quiet",
           "--set=accept_low_quality=true", "--epsilon=4", "--delta=1e-5")  # fmt: skip
    told = typed(*run, code=2).err
    assert "CAPE-E266" in told
    assert "give it with --policy" in " ".join(told.split())
    begins = f"a new ledger begins: {ledger}"  # so that a mistyped name is seen
    assert begins in typed(*run, "--policy", str(policy)).err
    assert ledger.is_file()
    assert "a new ledger" not in typed(*run, "--replace", "--policy", str(policy)).err
    policy.write_text(policy.read_text().replace("ledger.jsonl", "other.jsonl"))
    beside = plan / "local1/site-policy.toml"
    beside.write_text('ledger_file = "../../ledger.jsonl"\n')
    assert "CAPE-E266" in typed(*run, "--replace", "--policy", str(policy), code=2).err


def test_a_policy_in_the_working_folder_is_read_where_it_is_named(
    plan, tmp_path, capsys, monkeypatch
) -> None:
    """Of one file `validate` said that the site has two policies; `simulate` did not read it, and
    said nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site-policy.toml").write_text('dataset_id = "c"\nledger_file = "l.jsonl"\n')
    hint = "site-policy.toml lies here: give it with --policy"
    for words in (["validate", str(plan)], ["simulate", str(plan), "--out", "out"], ["ledger"]):
        refused = main(words)
        assert refused == (0 if words[0] == "validate" else 2), words
        said = capsys.readouterr().err
        assert said.count(hint) == 1
        assert "CAPE-E266" not in said
    assert not any(finding.severity == "E" for finding in cape.validate(plan))
    main(["validate", str(plan), "--policy", "site-policy.toml"])
    assert hint not in capsys.readouterr().err


def test_a_site_is_not_ready_where_its_ledger_would_refuse(plan, tmp_path, capsys, monkeypatch):
    """It said READY, and the run was refused (E260) for what earlier runs had spent.

    Later the command said so and the function did not.
    """
    policy, ledger = tmp_path / "site-policy.toml", tmp_path / "ledger.jsonl"
    policy.write_text('ledger_file = "ledger.jsonl"\ndataset_id = "cohort"\n')
    words = ["validate", str(plan / "local2"), "--policy", str(policy), "--fast", "--set"]
    words += ["epsilon=4", "--set", "delta=1e-5"]
    main(words)
    first = capsys.readouterr()
    assert "CAPE-E260" not in first.out
    assert f"a new ledger would begin: {ledger}" in first.err
    file = LifetimeLedgerFile(path=ledger, site="local2")
    of_others = spending.run("0f" * 16, dataset="cohort", delta=1e-5)
    file.join(of_others, cost(4))
    file.hold(of_others.run, cost(4))
    line = {"phase": "pca", "round": 1, "field": "total", "mu2": "39/10"}
    assert file.charge(of_others.run, line, cost(4)).word == "in"
    before = ledger.read_bytes()
    assert main(words) == 3
    said = capsys.readouterr().out
    assert re.search(r"CAPE-E260 .*this run asks epsilon 4\S* at delta 1e-05, left 1\.\d+", said)
    assert "NOT READY: 1 error" in said
    settings = {"epsilon": 4, "delta": 1e-5, "accept_low_quality": True}
    with monkeypatch.context() as patch:
        patch.setenv("CAPE_SITE_POLICY", str(policy))
        found = cape.validate(plan / "local2", settings=settings, fast=True)
    shipped = cape.validate(plan / "local2", settings=settings, fast=True)
    assert [each.code for each in found if each.severity == "E"] == ["CAPE-E260"]
    assert "CAPE-E260" not in [each.code for each in shipped]
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)  # the ledger of a policy that is no file
        given = load_policy(policy)
        assert found == cape.validate(plan / "local2", settings=settings, policy=given, fast=True)
    assert ledger.read_bytes() == before
    # What another run holds and has not spent comes back.
    assert main(["ledger", "close", "0f", "--why", "x", "--file", str(ledger)]) == 0
    policy.write_text(policy.read_text() + "max_total = [[20, 1e-5]]\n")
    capsys.readouterr()
    assert "CAPE-E260" not in (main(words), capsys.readouterr().out)[1]
