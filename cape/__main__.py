"""``python -m cape`` is the command ``cape``."""

from cape.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
