"""A small Work beside 10,000 others and one of 100,000 chunks: its search against the same in an empty database.

Goal: at most 1.3 times, and `limit` hits. Both services run and are asked in turns, so that whatever else the machine
does in the meantime slows both.
"""

import asyncio
import statistics
import sys
import time

from _support import Asked, Loaded, Loader, Running, ask, report, service

NEIGHBOURS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
BIG = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
LIMIT = 5
ROUNDS = 12
QUESTIONS = 25  # of a round


def main() -> None:
    with service() as empty, service() as full:
        lonely, crowded = Loader(empty), Loader(full)
        places = [(empty, lonely, fill(lonely)), (full, crowded, fill(crowded))]
        began = time.monotonic()
        big = crowded.work(BIG, "big")
        asyncio.run(crowded.write_vectors([big], maintain=True))
        print(f"loaded {BIG} chunks in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        asyncio.run(crowded.write_vectors(crowded.works(NEIGHBOURS, 10, "neighbour"), maintain=False))
        print(f"loaded {NEIGHBOURS} Works in {time.monotonic() - began:.0f} s", flush=True)
        for _, loader, _ in places:
            loader.finish()
        measure(places)


def fill(loader: Loader) -> Loaded:
    mine = loader.work(10, "mine")
    asyncio.run(loader.write_vectors([mine], maintain=False))
    return mine


def measure(places: list[tuple[Running, Loader, Loaded]]) -> None:
    asked: list[list[Asked]] = [[], []]
    for turn in range(-2, ROUNDS):  # the first two warm up
        for answers, (running, loader, mine) in zip(asked, places, strict=True):
            answer = ask(running, questions(loader, mine), clients=1)
            if turn >= 0:
                answers.append(answer)
    alone, among = (statistics.median(answer.p50 for answer in answers) for answers in asked)
    ratio = statistics.median(b.p50 / a.p50 for a, b in zip(*asked, strict=True))
    hits = min(answer.hits for answer in asked[1])
    print(
        f"alone p50 {alone:.1f} ms, among {NEIGHBOURS} Works and {BIG} chunks {among:.1f} ms:"
        f" {ratio:.2f} times (median of {ROUNDS} rounds; goal 1.3)"
    )
    print(f"hits: at least {hits} of {LIMIT}")
    report("small_works", {"ratio": round(ratio, 2), "hits": hits})


def questions(loader: Loader, mine: Loaded) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for _ in range(QUESTIONS):
        words = loader.words[loader.random.integers(0, 50, 4)]
        made.append({"query": " ".join(words), "work_id": str(mine.work_id), "limit": LIMIT})
    return made


if __name__ == "__main__":
    main()
