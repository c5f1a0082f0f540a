"""Runs a program as its process would and writes its CPU time into /output/cpu, 50 times a second.

    python clocked_program.py (-m MODULE | FILE)

Runs in images of its own (test_engine.py): a file per container, lines of seconds of the computer's
monotonic clock and of CPU.
"""

import os
import runpy
import socket
import sys
import threading
import time


def write_times():
    os.makedirs("/output/cpu", exist_ok=True)
    with open(f"/output/cpu/{socket.gethostname()}", "w", buffering=1) as file:
        while True:
            ended = sum(os.times()[2:4])  # children; a tick of these is 10 ms long
            file.write(f"{time.monotonic()} {time.process_time() + ended}\n")
            time.sleep(0.02)


threading.Thread(target=write_times, daemon=True).start()
if sys.argv[1] == "-m":
    runpy.run_module(sys.argv[2], run_name="__main__")
else:
    runpy.run_path(sys.argv[1], run_name="__main__")
