"""The second start, and what everything holds when it idles. Goals: ready in 4 s; at most 700 MB in all."""

import shutil
import tempfile
import time
from pathlib import Path

import psutil
from _support import report, start, stop


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="stackroom-bench-"))
    try:
        first = start(folder / "data")
        stop(first)
        second = start(folder / "data")
        time.sleep(10)
        parent = psutil.Process(second.process.pid)
        family = [parent, *parent.children(recursive=True)]
        proportional = sum(p.memory_full_info().pss for p in family) / 1024**2
        before = sum(p.cpu_times().user + p.cpu_times().system for p in family)
        time.sleep(10)
        busy = (sum(p.cpu_times().user + p.cpu_times().system for p in family) - before) / 10
        stop(second)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"first start {first.started_s:.1f} s, second {second.started_s:.1f} s (goal 4)")
    print(f"idle: {len(family)} processes, {proportional:.0f} MB proportional (goal 700), {busy * 100:.1f} % of a core")
    report("start_and_idle", {"second_start_s": round(second.started_s, 2), "idle_mb": round(proportional)})


if __name__ == "__main__":
    main()
