"""What a site says of its own files, read from the folder of its files."""

from __future__ import annotations

from pathlib import Path

from cape.errors import ConfigError, FoundError, own_words
from cape.settings.own_words import POLICY_FILE, OwnWords


def words_beside(base: Path) -> OwnWords:
    """Return the site's own words from the policy file in its folder; ConfigError E268.

    A run on an engine, where others can send files into the folder, takes them from the site's
    policy instead (`cape.site.policy`), which also checks the rest of the file.
    """
    import tomllib  # rounds on an engine do not need it

    path = base / POLICY_FILE
    if not path.is_file():
        return OwnWords()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        layout, columns = given.get("layout", []), given.get("not_exclusions", "")
        if not isinstance(columns, str) or not isinstance(layout, list):
            raise FoundError("layout is a list of texts, not_exclusions a text")
        return OwnWords(layout=tuple(map(str, layout)), not_exclusions=columns)
    except (OSError, ValueError, RecursionError) as err:  # its reader has no limits of its own
        detail = own_words(err, "not UTF-8, or nested too deeply")
        raise ConfigError("E268", detail=f"{path.name}: {detail}") from err
