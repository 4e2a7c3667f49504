"""One upload of 1 GB: how much the memory of the API process grows. Goal: at most 64 MB."""

import threading
import time
from collections.abc import Iterator

import psutil
from _support import report, service

SIZE = 1024**3
BLOCK = b"stackroom " * 6554


def main() -> None:
    with service(KB_MAX_UPLOAD_BYTES=str(2 * SIZE), KB_EXTRACTION_MAX_CHARACTERS="1000000") as running:
        api = next(p for p in psutil.Process(running.process.pid).children(recursive=True) if "api" in p.cmdline())
        with running.client() as client:
            kb = client.post("/knowledge-bases", json={"name": "big"}).json()["id"]
            document = client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "small"}).json()[
                "id"
            ]
            while not client.get(f"/documents/{document}").json()["terminal"]:
                time.sleep(0.05)
            before = api.memory_info().rss
            most = before
            done = threading.Event()

            def watch() -> None:
                nonlocal most
                while not done.wait(0.02):
                    most = max(most, api.memory_info().rss)

            watcher = threading.Thread(target=watch)
            watcher.start()
            began = time.monotonic()
            answer = client.put(f"/documents/{document}/content", content=body())
            took = time.monotonic() - began
            done.set()
            watcher.join()
    answer.raise_for_status()
    grown = (most - before) / 1024**2
    print(f"1 GB in {took:.1f} s; the API process grew from {before / 1024**2:.0f} MB by {grown:.0f} MB (goal 64)")
    report("upload_memory", {"grown_mb": round(grown, 1), "seconds": round(took, 1)})


def body() -> Iterator[bytes]:
    left = SIZE
    while left > 0:
        block = BLOCK[:left]
        left -= len(block)
        yield block


if __name__ == "__main__":
    main()
