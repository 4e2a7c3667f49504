"""Search over HTTP at 100,000 chunks: as one Work and as 200, with 1 and 8 clients, beside raw SQL of the same run.

Goals: vector p50 <= query embedding + raw SQL + 6 ms; hybrid p50 <= query embedding + the slower leg + 8 ms.
"""

import asyncio
import statistics
import sys
import time

import numpy as np
import psycopg
from _support import MODEL, Loaded, Loader, Running, ask, report, service, table

from app.ai_providers.contract import Vector
from app.ai_providers.local import LocalProvider, LocalSettings
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.binary import Packed, PackedDumper, pack_halfvec

CHUNKS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
QUESTIONS = 120


def main() -> None:
    figures = {}
    with service() as running:
        loader = Loader(running)
        began = time.monotonic()
        big = loader.work(CHUNKS, "one")
        asyncio.run(loader.write_vectors([big], maintain=True))
        small = loader.works(200, CHUNKS // 200, "many")
        asyncio.run(loader.write_vectors(small, maintain=False))
        loader.finish()
        print(f"loaded 2 x {CHUNKS} chunks in {time.monotonic() - began:.0f} s")
        for name, works in (("one Work", [big]), ("200 Works", small)):
            figures[name] = measure(running, loader, name, works)
    report("search_speed", figures)


def measure(running: Running, loader: Loader, name: str, works: list[Loaded]) -> dict[str, float]:
    raw = raw_sql_ms(running, loader, works)
    rows: list[tuple[object, ...]] = [("mode", "clients", "p50 ms", "p95 ms", "searches/s", "stages (p50 ms)")]
    found = {}
    for mode in ("vector", "lexical", "hybrid"):
        ask(running, questions(loader, works, mode, 20), clients=1)
        for clients in (1, 8):
            asked = ask(running, questions(loader, works, mode, QUESTIONS), clients=clients)
            stages = " ".join(f"{k.removesuffix('_ms')} {v:.1f}" for k, v in asked.stages.items())
            rows.append((mode, clients, f"{asked.p50:.1f}", f"{asked.p95:.1f}", f"{asked.per_s:.0f}", stages))
            found[mode, clients] = asked
    table(f"{name}: {sum(len(w.vectors) for w in works):,} chunks; the same SQL raw: {raw:.2f} ms", rows)
    vector, hybrid = found["vector", 1], found["hybrid", 1]
    over = vector.p50 - vector.stages["embed_ms"] - raw
    slower = max(hybrid.stages["vector_ms"], hybrid.stages["lexical_ms"] - hybrid.stages["embed_ms"])
    hybrid_over = hybrid.p50 - hybrid.stages["embed_ms"] - slower
    print(f"  vector: {over:+.1f} ms over embedding + raw SQL (goal 6); hybrid: {hybrid_over:+.1f} ms over (goal 8)")
    return {"raw_sql_ms": round(raw, 2), "vector_over_ms": round(over, 2), "hybrid_over_ms": round(hybrid_over, 2)}


def questions(loader: Loader, works: list[Loaded], mode: str, number: int) -> list[dict[str, object]]:
    """Questions of four words of middling frequency, each new, so that no cache answers."""
    made = []
    for n in range(number):
        words = loader.words[loader.random.integers(20, 3000, 4)]
        work = works[n % len(works)]
        made.append({"query": " ".join(words), "work_id": str(work.work_id), "limit": 10, "mode": mode})
    return made


def raw_sql_ms(running: Running, loader: Loader, works: list[Loaded]) -> float:
    """Median of the store's own statement over one bare connection, with the vectors of such questions."""
    times = []
    vectors = asyncio.run(embed([str(q["query"]) for q in questions(loader, works, "vector", QUESTIONS)]))
    with psycopg.connect(running.dsn, prepare_threshold=None) as connection:
        connection.adapters.register_dumper(Packed, PackedDumper)
        for n in range(QUESTIONS):
            work = works[n % len(works)]
            row = connection.execute(
                "select space_no from pgvector_spaces where work_id = %s", (work.work_id,)
            ).fetchone()
            if row is None:
                raise SystemExit("no space")
            promoted = len(work.vectors) > 10_000
            sql = statements.index_query(row[0], 384, "") if promoted else statements.exact_query(row[0], "")
            question = pack_halfvec(np.asarray(vectors[n], np.float32))
            values = {"work_id": work.work_id, "question": question, "top_k": 38 if promoted else 18}
            began = time.perf_counter()
            with connection.transaction():
                if promoted:
                    connection.execute(
                        "select set_config('enable_sort','off',true), set_config('enable_seqscan','off',true),"
                        " set_config('enable_bitmapscan','off',true), set_config('hnsw.ef_search','400',true)"
                    )
                connection.execute(sql, values, binary=True).fetchall()  # type: ignore[call-overload]
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def embed(texts: list[str]) -> list[Vector]:
    provider = LocalProvider(LocalSettings(model_dir=MODEL))
    try:
        return await provider.create_embedding(texts, role="query", model=provider.default_model)
    finally:
        await provider.close()


if __name__ == "__main__":
    main()
