"""A site of COINSTAC, one round per process: JSON on stdin, JSON on stdout.

stdin   {"input": ..., "cache": {...}, "state": {"baseDirectory": ..., "outputDirectory": ...,
         "cacheDirectory": ..., "transferDirectory": ..., "clientId": ..., "iteration": k}}
stdout  {"output": {...}, "cache": {...}, "success": false}, one line, exit 0
stderr  the public text of an error, exit 1
"""

import cape.coinstac.computation

if __name__ == "__main__":
    raise SystemExit(cape.coinstac.computation.main("local"))
