"""274 Markdown pages until findable: with the packaged model beside the bare embedder, and with a provider that
answers at once.

Goals: at least 0.85 of the bare embedder's rate on the same chunks; at least 60 documents/s with an instant provider.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psycopg
from _support import MODEL, REPOSITORY, SHARED, Running, free_port, report, service

from app.ai_providers.local import LocalProvider, LocalSettings

PAGES = SHARED / "data" / "docs"


def main() -> None:
    if not PAGES.is_dir():
        print("skipped: ../shared/data/docs is absent")
        return
    pages = sorted(p for p in PAGES.rglob("*.md") if p.name != "SOURCE.md")
    with service() as running:
        took, chunks = ingest(running, pages)
    bare = asyncio.run(bare_embedder(chunks))
    share = bare / took
    print(
        f"packaged model: {len(pages)} pages, {len(chunks)} chunks in {took:.1f} s; the bare embedder {bare:.1f} s: {share:.2f} of its rate (goal 0.85)"
    )
    per_s = instant(pages)
    print(f"provider that answers at once: {per_s:.1f} documents/s (goal 60)")
    report("ingest_speed", {"share_of_bare_embedder": round(share, 2), "instant_documents_per_s": round(per_s, 1)})


def ingest(running: Running, pages: list[Path]) -> tuple[float, list[str]]:
    """Seconds until every page is ready, and what was embedded."""
    with running.client() as client:
        kb = client.post("/knowledge-bases", json={"name": "pages"}).json()["id"]
        warm = client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "w", "text": "warm up"}).json()["id"]
        while not client.get(f"/documents/{warm}").json()["terminal"]:
            time.sleep(0.02)
        began = time.monotonic()
        asyncio.run(upload(running, kb, pages))
        while True:
            counts = client.get(f"/knowledge-bases/{kb}").json()["document_counts"]
            if counts["ready"] + counts["failed"] > len(pages):
                break
            time.sleep(0.05)
        took = time.monotonic() - began
    with psycopg.connect(running.dsn) as connection:
        rows = connection.execute(
            "select s.context || s.text from kb_spans s join kb_documents d on d.id = s.document_id where d.id <> %s",
            (warm,),
        ).fetchall()
    return took, [row[0] for row in rows]


async def upload(running: Running, kb: str, pages: list[Path]) -> None:
    gate = asyncio.Semaphore(8)
    headers = {"Authorization": f"Bearer {running.key}"}
    async with httpx.AsyncClient(base_url=f"{running.url}/v1", headers=headers, timeout=60) as client:

        async def one(page: Path) -> None:
            async with gate:
                fields = {"external_id": str(page.relative_to(PAGES))}
                files = {"file": (page.name, page.read_bytes())}
                answer = await client.post(f"/knowledge-bases/{kb}/documents", files=files, data=fields)
                answer.raise_for_status()

        await asyncio.gather(*(one(page) for page in pages))


async def bare_embedder(chunks: list[str]) -> float:
    """Seconds for the same chunks, nothing else on the machine."""
    provider = LocalProvider(LocalSettings(model_dir=MODEL))
    try:
        await provider.create_embedding(["warm"], role="document", model=provider.default_model)
        began = time.monotonic()
        await provider.create_embedding(chunks, role="document", model=provider.default_model)
        return time.monotonic() - began
    finally:
        await provider.close()


def instant(pages: list[Path]) -> float:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "benchmarks/instant_provider.py", "--port", str(port), "--width", "384"],
        cwd=REPOSITORY,
    )
    environment = {
        "KB_EMBEDDING_PROVIDER_ID": "openai",
        "KB_EMBEDDING_MODEL": "instant",
        "KB_EMBEDDING_DIMENSIONS": "384",
        "OPENAI_API_KEY": "sk-benchmark",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
    }
    try:
        with service(**environment) as running:
            took, _ = ingest(running, pages)
            return len(pages) / took
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
