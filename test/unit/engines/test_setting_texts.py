"""Texts of settings stand in files of their own, and every setting has them."""

import inspect
import tomllib
from pathlib import Path

from cape.computations import load, names
from cape.engines.setting_texts import texts_of


def test_every_setting_has_its_texts_and_no_text_is_of_a_setting_that_is_gone() -> None:
    """Texts stand in TOML files beside the modules, where a renamed setting would lose its own."""
    declared: dict[Path, set[str]] = {}
    for name in names():
        config = load(name).config
        texts = texts_of(config)
        bare = [setting for setting, text in texts.items() if text.label == setting]
        assert not bare, f"{name}: no label in the .toml beside the module of its settings"
        for cls in config.__mro__[:-1]:
            table = Path(inspect.getfile(cls)).with_suffix(".toml")
            declared.setdefault(table, set()).update(vars(cls).get("__annotations__", ()))
    for table, known in declared.items():
        if table.is_file():
            assert set(tomllib.loads(table.read_text())) <= known, table
