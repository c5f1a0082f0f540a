"""A computation that does nothing, with messages as long as ours: what the engine itself costs.

Runs in an image of its own (test_engine.py).  `sizes.json` holds, for every exchange, the bytes of
a site's reply, of the broadcast and of the cache of either party.
"""

import asyncio
import json
import signal
from pathlib import Path

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

SIZES = json.loads(Path("/sizes.json").read_text())


def answer(text):
    call = json.loads(text)
    step = SIZES[call["data"]["state"]["iteration"] - 1]
    local = call["mode"] == "local"
    return json.dumps(
        {
            "type": "stdout",
            "data": {
                "output": {"x": "a" * step["reply" if local else "broadcast"]},
                "cache": {"x": "a" * step["site_cache" if local else "aggregator_cache"]},
                "success": not local and call["data"]["state"]["iteration"] == len(SIZES),
            },
            "end": True,
        }
    )


async def one(connection):
    try:
        await connection.send(answer(await connection.recv()))
        await connection.wait_closed()
    except ConnectionClosed:
        return


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serve(one, "0.0.0.0", 8881, max_size=2**30, compression=None, ping_interval=None,
                     close_timeout=1):  # fmt: skip
        await stop.wait()


asyncio.run(main())
