"""A file that is there is written over only where --replace is typed.

Belongs to `cape/cli/common.py`.
"""

import inspect
from pathlib import Path

import numpy as np
import pytest

from cape.cli import main
from cape.cli.commands import COMMANDS

# A key in use is never replaced (CAPE-E302); a picture follows from what was typed
NEVER = {"keygen", "account"}
TYPED = {
    "init": "init site --out {out} --orientation time_by_feature",
    "promise": "promise --settings settings.toml --out {out}",
    "settings": "settings settings.toml --out {out}",
    "validate": "validate site --settings settings.toml --out {out}",
    "people": "people site --write {out}",
}


def test_every_command_that_writes_one_file_takes_replace() -> None:
    writing = {
        name
        for name, command in COMMANDS.items()
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        for option in getattr(parameter.annotation, "__metadata__", ())
        if option.dir_okay is False and not option.exists
    }
    assert writing - NEVER == set(TYPED)
    for name in TYPED:
        assert "replace" in inspect.signature(COMMANDS[name]).parameters, name


@pytest.mark.parametrize("name", TYPED)
def test_a_form_that_was_filled_in_is_not_lost(name: str, tmp_path, monkeypatch, typed) -> None:
    """`cape promise --out form.md` and `cape settings --out` wrote over it without a word."""
    monkeypatch.chdir(tmp_path)
    Path("site").mkdir()
    rng = np.random.default_rng(0)
    for m in range(3):
        np.savetxt(f"site/sub-{m}.csv", rng.normal(size=(40, 5)), delimiter=",")
    settings = 'computation = "capegica"\nfeature_space = "matrix"\nepsilon = 1\ndelta = 1e-5\n'
    Path("settings.toml").write_text(
        settings + "n_sites = 4\nn_components = 3\nmin_timepoints = 20\n"
    )
    words, out = TYPED[name].format(out="written").split(), Path("written")
    code = main(words)
    made = out.read_bytes()
    out.write_bytes(b"by hand")
    assert "written exists already; write it again with --replace" in typed(*words, code=2).err
    assert out.read_bytes() == b"by hand"
    assert main([*words, "--replace"]) == code
    assert out.read_bytes() == made
