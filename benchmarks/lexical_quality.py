"""Measure the lexical leg offline: nDCG@10 and speed over retrieval collections, without database or service.

    python benchmarks/lexical_quality.py COLLECTION_DIR...

A collection is a folder with corpus.jsonl, queries.jsonl and qrels.tsv. Documents are title and text, cut at paragraphs
into pieces of about 440 tokens; a document ranks where its best chunk ranks. Prints one JSON line for each.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.documents.lexical.analysis import analyze_document, analyze_query, detect_language
from app.documents.lexical.postings import pack
from app.documents.lexical.scoring import score

CHUNK_CHARACTERS = 1700
Row = tuple[str, str, int, bytes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+", metavar="COLLECTION_DIR")
    for folder in parser.parse_args().collections:
        print(json.dumps(measure(folder), ensure_ascii=False), flush=True)


def measure(folder: Path) -> dict[str, object]:
    index: defaultdict[str, list[Row]] = defaultdict(list)
    languages: set[str | None] = set()
    n_chunks = total_length = 0
    indexing_s = 0.0
    for row in read_jsonl(folder / "corpus.jsonl"):
        chunks = list(pieces(f"{row.get('title') or ''}\n\n{row.get('text') or ''}".strip()))
        started = time.process_time()
        language = detect_language("\n".join(chunks))
        document = analyze_document(chunks, language)
        packed = pack(document)
        indexing_s += time.process_time() - started
        languages.add(language)
        n_chunks += len(chunks)
        total_length += document.total_length
        for term, data in packed:
            index[term].append((term, str(row["id"]), 1, data))

    relevant = read_qrels(folder / "qrels.tsv")
    gains, times = [], []
    for query in read_jsonl(folder / "queries.jsonl"):
        if str(query["id"]) not in relevant:
            continue
        started = time.process_time()
        terms = analyze_query(str(query["text"]), languages)
        rows = [row for term in terms.terms for row in index.get(term, ())]
        hits = score(terms, rows, n_chunks=n_chunks, average_length=total_length / max(n_chunks, 1), top_k=50)
        times.append(time.process_time() - started)
        gains.append(ndcg_at_10(list(dict.fromkeys(hit.document for hit in hits)), relevant[str(query["id"])]))
    return {
        "collection": folder.name,
        "queries": len(gains),
        "ndcg@10": round(statistics.fmean(gains), 4),
        "chunks": n_chunks,
        "chunks_per_cpu_s": round(n_chunks / indexing_s),
        "query_p50_ms": round(statistics.median(times) * 1000, 2),
    }


def read_jsonl(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    relevant: defaultdict[str, dict[str, int]] = defaultdict(dict)
    with path.open(encoding="utf-8") as lines:
        for query_id, document_id, gain, *_ in (line.rstrip("\n").split("\t") for line in lines):
            if gain.lstrip("-").isdigit() and int(gain) > 0:
                relevant[query_id][document_id] = int(gain)
    return relevant


def pieces(text: str) -> Iterator[str]:
    """Whole paragraphs up to the size of a chunk; a longer one is cut between words."""
    piece = ""
    for paragraph in text.split("\n\n"):
        if piece and len(piece) + len(paragraph) > CHUNK_CHARACTERS:
            yield piece
            piece = ""
        while len(paragraph) > CHUNK_CHARACTERS:
            cut = paragraph.rfind(" ", 1, CHUNK_CHARACTERS)
            cut = cut if cut > 0 else CHUNK_CHARACTERS
            yield paragraph[:cut]
            paragraph = paragraph[cut:]
        piece += paragraph + "\n\n"
    if piece.strip():
        yield piece


def ndcg_at_10(ranked: list[str], relevant: dict[str, int]) -> float:
    gained = sum(relevant.get(document, 0) / math.log2(rank + 2) for rank, document in enumerate(ranked[:10]))
    best = sum(gain / math.log2(rank + 2) for rank, gain in enumerate(sorted(relevant.values(), reverse=True)[:10]))
    return gained / best


if __name__ == "__main__":
    main()
