"""The entry for OpenDP's registry, against the form of its schema of July 2026."""

import json
from pathlib import Path

import cape.report
from support import report_example as example

# Every object of the schema refuses other keys than these.
FORM = {
    "basic": "name data_curators description intended_use data_product_type data_product_region "
    "data_product_sector publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details "
    "data_source_type access_type",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms",
    "administrative": "registry_authors",
}
WORDS = {
    ("basic", "data_product_type"): "Summary statistics",
    ("basic", "data_product_sector"): "Healthcare",
    ("dp_variant", "variant_name"): "Approximate DP",
    ("deployment_model", "model_name"): "Federated",
    ("deployment_model", "release_type"): "One release",
    ("deployment_model", "data_source_type"): "Static",
    ("deployment_model", "access_type"): "Non-interactive",
}


def folder_of(path: Path, **how: object) -> Path:
    cape.report.write_results(path, example.outcome(**how))
    return path


def test_the_entry_has_the_form_of_the_registry_and_the_figures_of_privacy_json(tmp_path, typed):
    folder = folder_of(tmp_path)
    words = ["report", str(folder), "--registry"]
    typed(*words, "--contact", "Clinic X", code=2)
    entry = json.loads(typed(*words, "--contact", "Clinic X", "--purpose", "a study").out)
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    made = entry["deployment"]
    assert {name: " ".join(fields) for name, fields in made.items()} == FORM
    assert {place: made[place[0]][place[1]] for place in WORDS} == WORDS
    stated = json.loads((folder / "privacy.json").read_text())
    assert made["privacy_loss"]["privacy_parameters"] == {
        "epsilon": stated["epsilon"], "delta": stated["delta"],
    }  # fmt: skip
    for line in stated["not_covered"]:
        assert line in made["dp_variant"]["unprotected_quantities"]
    assert made["basic"]["data_curators"] == made["administrative"]["registry_authors"]


def test_a_run_that_promises_nothing_has_no_entry(tmp_path, typed) -> None:
    folder = folder_of(tmp_path, private=False)
    words = ["report", str(folder), "--registry", "--contact", "X", "--purpose", "y"]
    assert "this run promises nothing" in typed(*words, code=2).err


def test_a_folder_without_the_file_says_so(tmp_path, typed) -> None:
    """It said that the system refuses a file."""
    folder = folder_of(tmp_path)
    (folder / "privacy.json").unlink()
    words = ["report", str(folder), "--registry", "--contact", "X", "--purpose", "y"]
    told = typed(*words, code=2).err
    assert "CAPE-E017" in told
    assert "privacy.json: No such file" in told
