"""A small Work beside 10,000 others and one of 100,000 chunks: its search against the same in an empty database.

Goal: at most 1.3 times, and `limit` hits.
"""

import asyncio
import sys

from _support import Loader, ask, report, service

NEIGHBOURS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
BIG = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
LIMIT = 5


def main() -> None:
    with service() as running:
        loader = Loader(running)
        mine = loader.work(10, "mine")
        asyncio.run(loader.write_vectors([mine], maintain=False))
        loader.finish()

        def bodies(number: int) -> list[dict[str, object]]:
            made = []
            for _ in range(number):
                words = loader.words[loader.random.integers(0, 50, 4)]
                made.append({"query": " ".join(words), "work_id": str(mine.work_id), "limit": LIMIT})
            return made

        ask(running, bodies(30), clients=1)
        alone = ask(running, bodies(150), clients=1)
        big = loader.work(BIG, "big")
        asyncio.run(loader.write_vectors([big], maintain=True))
        neighbours = loader.works(NEIGHBOURS, 10, "neighbour")
        asyncio.run(loader.write_vectors(neighbours, maintain=False))
        loader.finish()
        ask(running, bodies(30), clients=1)
        crowded = ask(running, bodies(150), clients=1)
    ratio = crowded.p50 / alone.p50
    print(
        f"alone p50 {alone.p50:.1f} ms, among {NEIGHBOURS} Works and {BIG} chunks {crowded.p50:.1f} ms: {ratio:.2f} times (goal 1.3)"
    )
    print(f"hits: at least {crowded.hits} of {LIMIT}")
    report("small_works", {"ratio": round(ratio, 2), "hits": crowded.hits})


if __name__ == "__main__":
    main()
