"""A site of COINSTAC, one round per process: JSON on stdin, JSON on stdout.

stdin   {"input": ..., "cache": {...}, "state": {"baseDirectory": ..., "outputDirectory": ...,
         "cacheDirectory": ..., "transferDirectory": ..., "clientId": ..., "iteration": k}}
stdout  {"output": {...}, "cache": {...}, "success": false}, one line, exit 0
stderr  the public text of an error, exit 1
"""

import gc

from cape.kernels import pin

gc.disable()  # what is imported stays: to look for garbage in it costs a tenth of the start
pin()

import cape.engines.coinstac.computation

if __name__ == "__main__":
    cape.engines.coinstac.computation.program("local")
