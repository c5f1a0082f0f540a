"""Settings: what a form or a file gives becomes a checked, frozen record or a clear refusal."""

import ast
import dataclasses
from pathlib import Path

import pytest

import cape
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.documents import parse_json
from cape.settings.option import option
from cape.settings.words import parse_shape

GIVEN = {"epsilon": 1.0, "delta": 1e-5}


@dataclass(frozen=True, kw_only=True, slots=True)
class Example(Config):
    """A computation's settings, with one setting of each kind."""

    n_components: int = option(20, low=2, high=50)
    rate: float = option(0.5, high=1.0)
    name: str = option("x")


def refuse(given: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Example.from_input({**GIVEN, **given})
    return caught.value


def test_only_epsilon_and_delta_have_no_default() -> None:
    config = Example.from_input(GIVEN)
    assert (config.epsilon, config.delta, config.private) == (1.0, 1e-5, True)
    for missing in GIVEN:
        given = {name: value for name, value in GIVEN.items() if name != missing}
        with pytest.raises(ConfigError, match=f"E013 setting '{missing}' is required"):
            Example.from_input(given)


def test_a_run_that_protects_nobody_needs_no_budget() -> None:
    for word in (False, "false", "False", 0):
        config = Example.from_input({"private": word})
        assert not config.private
        assert config.epsilon == 0.0


@pytest.mark.parametrize("given", ["20", 20, 20.0, "2e1"], ids=repr)
def test_numbers_may_come_as_text(given: object) -> None:
    config = Example.from_input({**GIVEN, "n_components": given, "epsilon": "1", "delta": "1e-5"})
    assert config.n_components == 20
    assert type(config.n_components) is int
    assert config == Example.from_input(GIVEN)


@pytest.mark.parametrize("given", [1, 51, 2.5, "many", "", "nan", "inf", True, [20], "1e999"])
def test_impossible_whole_numbers_are_refused_with_the_range(given: object) -> None:
    err = refuse({"n_components": given})
    assert err.code == "CAPE-E011"
    assert "n_components=" in err.public
    assert "allowed a whole number, 2 to 50" in err.public


def test_ranges_are_inclusive_and_one_sided_ones_are_named() -> None:
    assert Example.from_input({**GIVEN, "n_components": 2}).n_components == 2
    assert Example.from_input({**GIVEN, "n_components": 50}).n_components == 50
    assert "a number, -inf to 1" in refuse({"rate": 1.5}).public
    assert "a whole number, 1 to inf" in refuse({"min_sites": 0}).public
    # "0 to inf", of which 0 is no number of sites
    assert "a whole number, 1 to inf" in refuse({"n_sites": "three"}).public


@pytest.mark.parametrize(
    ("given", "expected"), [("true", True), ("No", False), (1, True), ("0", False)]
)
def test_truth_values_come_in_many_forms(given: object, expected: bool) -> None:
    config = Example.from_input({**GIVEN, "accept_low_quality": given})
    assert config.accept_low_quality is expected
    assert "true or false" in refuse({"accept_low_quality": "perhaps"}).public


def test_an_unknown_setting_names_the_nearest_one() -> None:
    err = refuse({"n_component": 20})
    assert err.public == "CAPE-E010 unknown setting 'n_component'; did you mean 'n_components'?"
    assert "did you mean" not in refuse({"zzzz": 1}).public


@pytest.mark.parametrize("name", ["gradient_clip", "bias_clip", "round_epsilon", "solver"])
def test_a_setting_of_another_computation_is_near_to_nothing(name: str) -> None:
    """Those of the papers got names that share an ending: orientation, bids_exclude, epsilon."""
    assert "did you mean" not in refuse({name: 1}).public


def test_an_unknown_choice_lists_the_known_ones_and_the_nearest() -> None:
    err = refuse({"noise": "corelated"})
    assert "noise=corelated: allowed correlated, local" in err.public
    assert "did you mean 'correlated'?" in err.public
    assert "choose one of them" in refuse({"noise": "zzz"}).public


def test_texts_must_be_texts() -> None:
    assert "a text" in refuse({"name": 3}).public


def test_none_means_not_given() -> None:
    assert Example.from_input({**GIVEN, "n_components": None}) == Example.from_input(GIVEN)


@pytest.mark.parametrize("given", ["MNI152-7mm", "sub-1_mask.nii", "my-mask.img", ""])
def test_masks_are_bundled_names_or_a_file(given: str) -> None:
    assert "MNI152-10mm" in refuse({"mask": given}).public
    for good in ("MNI152-8mm", "MNI152-3mm", "file"):
        assert Example.from_input({**GIVEN, "mask": good}).mask == good


@pytest.mark.parametrize("given", ["30", "30,1", "a,b", "30,30,30", "30;30"])
def test_shapes_of_images_are_two_whole_numbers(given: str) -> None:
    assert "two whole numbers" in refuse({"image_shape": given}).public
    assert parse_shape("30,40") == (30, 40)


@pytest.mark.parametrize("delta", [0, 0.2, 1.0, -1e-5])
def test_delta_outside_its_range_is_refused(delta: float) -> None:
    assert refuse({"delta": delta}).fields["setting"] == "delta"


def test_assumed_colluders_follow_the_number_of_sites_unless_chosen() -> None:
    config = Example.from_input(GIVEN)
    assert [config.colluders(s) for s in (2, 3, 4, 6, 7, 9, 10, 20)] == [1, 1, 1, 1, 2, 2, 3, 6]
    assert Example.from_input({**GIVEN, "assumed_colluders": 0}).colluders(10) == 0


def test_the_digest_changes_with_any_setting_and_with_the_class() -> None:
    config = Example.from_input(GIVEN)
    assert config.digest() == Example.from_input({**GIVEN, "delta": "1e-05"}).digest()
    digests = {config.digest(), Config.from_input(GIVEN).digest()}
    digests |= {
        dataclasses.replace(config, **change).digest()
        for change in ({"epsilon": 2.0}, {"name": "y"}, {"n_components": 21}, {"private": False})
    }
    assert len(digests) == 6
    assert all(len(digest) == 64 for digest in digests)


def test_settings_are_plain_values_in_the_order_of_declaration() -> None:
    config = Example.from_input(GIVEN)
    settings = config.settings()
    assert list(settings) == [spec.name for spec in dataclasses.fields(Example)]
    assert Example.from_input(settings) == config


def test_a_configuration_cannot_be_changed_afterwards() -> None:
    config = Example.from_input(GIVEN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.epsilon = 2.0  # type: ignore[misc]


def test_every_setting_has_consistent_limits() -> None:
    for spec in dataclasses.fields(Config):
        low, high = spec.metadata["low"], spec.metadata["high"]
        if isinstance(spec.default, int | float) and not isinstance(spec.default, bool):
            assert low is None or spec.default >= low, spec.name
            assert high is None or spec.default <= high, spec.name


def test_one_reader_of_json_refuses_a_key_that_stands_twice_and_nothing_reads_past_it() -> None:
    """Two readers of such a document would take two values: one checks, the other acts."""
    for text in ('{"a": 1, "a": 2}', b'{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]'):
        with pytest.raises(ValueError, match="twice"):
            parse_json(text)
    assert parse_json('{"a": [{"a": 1}]}') == {"a": [{"a": 1}]}
    readers = set()
    for path in sorted(Path(cape.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if named and node.value.id in ("json", "simplejson"):
                if node.attr not in ("dump", "dumps"):
                    readers.add((path.name, f"{node.value.id}.{node.attr}"))
            if isinstance(node, ast.ImportFrom) and node.module in ("json", "simplejson"):
                readers.add((path.name, f"from {node.module}"))
    # The second one is of messages, with limits of its own, and refuses it as well; the third is of
    # files that this program writes for itself alone, under a check sum.
    assert readers == {
        ("documents.py", "json.loads"),
        ("wire.py", "simplejson.loads"),
        ("array_file.py", "json.loads"),
    }


def test_nobody_is_cut_below_what_a_person_needs() -> None:
    """People of 120 volumes were cut to 20, and counted, where 100 are needed."""
    said = str(refuse({"max_timepoints": 20, "min_timepoints": 60}))
    assert "E012" in said
    assert "max_timepoints=20 is below min_timepoints" in said
    few = Example.from_input({**GIVEN, "max_timepoints": 60, "min_timepoints": 60})
    assert few.max_timepoints == 60
