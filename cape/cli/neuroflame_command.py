"""``cape neuroflame``: the author files of NeuroFLAME, laid into a checkout of its boilerplate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cape.cli.common import AsJson, SetValues, assignments, file_option, folder_argument, result


def neuroflame_command(
    checkout: Annotated[Path, folder_argument("A checkout of NeuroFLAME's boilerplate.")],
    settings: Annotated[Path | None, file_option("The owner's settings.toml.")] = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Lay the author files of this computation into a checkout of NeuroFLAME's boilerplate."""
    from cape.engines.neuroflame.author_files import lay
    from cape.planning.consortium_folder import merged, read_file, read_settings

    parameters = None
    if settings is not None or set_values:
        given = assignments(set_values)
        read_settings(settings, given)  # refused here, not in the first exchange
        parameters = merged({} if settings is None else read_file(settings), given)
    paths = lay(checkout, parameters)
    lines = (f"written: {checkout / path}" for path in paths)
    result({"written": paths}, *lines, as_json=as_json)
