"""The aggregator of COINSTAC, one round per process: JSON on stdin, JSON on stdout.

stdin   {"input": {"<site id>": <output of that site>, ...}, "cache": {...}, "state": {...}}
stdout  {"output": {...}, "cache": {...}, "success": true at the end}, one line, exit 0
stderr  the public text of an error, exit 1
"""

import cape.coinstac.computation

if __name__ == "__main__":
    raise SystemExit(cape.coinstac.computation.main("remote"))
