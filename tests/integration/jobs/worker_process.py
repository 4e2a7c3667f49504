"""A worker as a process of its own, to be killed: `python -m tests.integration.jobs.worker_process URL`.

Its one task says on standard output that it has begun, and then takes for ever.
"""

import asyncio
import signal
import sys

from app.db.engine import Database, make_engine
from app.jobs.running import JobRunner, Pace


async def task(n: str) -> None:
    sys.stdout.write(f"{n}\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


async def main(url: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    database = Database(make_engine(url))
    await JobRunner(url, database, {"task": task}, Pace(concurrency=2, heartbeat_s=0.3, stalled_s=1.0)).run(stop)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
