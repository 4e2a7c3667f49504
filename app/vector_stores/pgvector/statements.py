"""The plugin's SQL. Ids and vectors are always bound; only numbers of our own making are written into a text."""
# ruff: noqa: S608  (that sentence is what the rule asks for)

from typing import LiteralString

from app.vector_stores.contract import Space

ANN_INDEX_PREFIX = "pgvector_ann_"

LOOK: LiteralString = """
SELECT to_regtype('halfvec')::oid::int8, (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
BEGIN_AS: LiteralString = """
SELECT set_config('stackroom.works', %(works)s, true),
       set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('statement_timeout', %(timeout_ms)s, true),
       set_config('lock_timeout', %(lock_timeout_ms)s, true)
"""
TAKE_ROLE: LiteralString = ", set_config('role', %(role)s, true)"
# An ordered scan of the partial index is the only plan that needs no sort.
USE_INDEX: LiteralString = """,
       set_config('enable_sort', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true)
"""
HNSW_KNOBS: LiteralString = """,
       set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.ef_search', %(ef_search)s, true)
"""
IVFFLAT_KNOBS: LiteralString = """,
       set_config('ivfflat.iterative_scan', 'relaxed_order', true),
       set_config('ivfflat.probes', %(probes)s, true)
"""

FIND_SPACE: LiteralString = """
SELECT space_no, index_state, index_kind, row_count, index_rows, index_bytes FROM pgvector_spaces
WHERE work_id = %(work_id)s AND space_key = %(space_key)s
"""
ADD_SPACE: LiteralString = """
INSERT INTO pgvector_spaces (work_id, space_key, dims) VALUES (%(work_id)s, %(space_key)s, %(dims)s)
ON CONFLICT (work_id, space_key) DO NOTHING
"""
# A writer holds its space until it commits; the one who drops the space waits for that, and then looks again.
HOLD_SPACE: LiteralString = FIND_SPACE + " FOR KEY SHARE"
CLOSE_SPACE: LiteralString = "SELECT 1 FROM pgvector_spaces WHERE space_no = %(space_no)s FOR UPDATE"
DROP_SPACE: LiteralString = "DELETE FROM pgvector_spaces WHERE space_no = %(space_no)s"

INSERT_CHUNKS: LiteralString = """
INSERT INTO pgvector_chunks (work_id, space_no, document_id, build, chunk_index, knowledge_base_id, embedding)
SELECT %(work_id)s, %(space_no)s, %(document_id)s, %(build)s, new.chunk_index, new.knowledge_base_id, new.embedding
FROM unnest(%(chunk_indexes)b::int4[], %(knowledge_base_ids)b::uuid[], %(embeddings)b::halfvec[])
     AS new (chunk_index, knowledge_base_id, embedding)
ON CONFLICT DO NOTHING
"""

IN_SPACE: LiteralString = """
work_id = %(work_id)s AND space_no =
    (SELECT space_no FROM pgvector_spaces WHERE work_id = %(work_id)s AND space_key = %(space_key)s)
"""
DELETE_DOCUMENT: LiteralString = f"DELETE FROM pgvector_chunks WHERE {IN_SPACE} AND document_id = %(document_id)s"
DELETE_BUILD: LiteralString = DELETE_DOCUMENT + " AND build = %(build)s"
PRUNE: LiteralString = DELETE_DOCUMENT + " AND build < %(before_build)s"
DELETE_SOME_OF_SPACE: LiteralString = """
DELETE FROM pgvector_chunks WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pgvector_chunks WHERE space_no = %(space_no)s AND work_id = %(work_id)s LIMIT %(most)s))
"""
COUNT: LiteralString = f"SELECT count(*) FROM pgvector_chunks WHERE {IN_SPACE}"
COUNT_DOCUMENT: LiteralString = COUNT + " AND document_id = %(document_id)s"
FETCH: LiteralString = f"""
SELECT chunk_index, embedding FROM pgvector_chunks
WHERE {IN_SPACE} AND document_id = %(document_id)s AND build = %(build)s
"""
SCAN: LiteralString = f"""
SELECT document_id, build, count(*) FROM pgvector_chunks
WHERE {IN_SPACE} AND (document_id, build) > (%(after_document)s, %(after_build)s)
GROUP BY document_id, build ORDER BY document_id, build LIMIT %(most)s
"""

IN_BASES: LiteralString = " AND knowledge_base_id = ANY (%(knowledge_base_ids)b::uuid[])"
IN_DOCUMENTS: LiteralString = " AND document_id = ANY (%(document_ids)b::uuid[])"
COLUMNS: LiteralString = "knowledge_base_id, document_id, build, chunk_index"


def space_key(space: Space) -> str:
    """`Space.key` as Postgres can hold it: text without NUL, different for different spaces."""
    return space.key.replace("%", "%25").replace("\0", "%00")


def ann_index(space_no: int) -> str:
    """The name of a space's own index."""
    return f"{ANN_INDEX_PREFIX}{int(space_no)}"


def restriction(*, bases: bool, documents: bool) -> str:
    """The rest of a WHERE clause, for the restrictions that are asked for."""
    return (IN_BASES if bases else "") + (IN_DOCUMENTS if documents else "")


def exact_query(space_no: int, where: str) -> str:
    """Every allowed row is compared; MATERIALIZED keeps any vector index out of it."""
    number = str(int(space_no))
    return f"""
WITH mine AS MATERIALIZED (
    SELECT {COLUMNS}, embedding <=> %(question)b::halfvec AS distance
    FROM pgvector_chunks WHERE space_no = {number} AND work_id = %(work_id)s{where})
SELECT {COLUMNS}, distance FROM mine ORDER BY distance, document_id, chunk_index, build LIMIT %(top_k)s
"""


def index_query(space_no: int, dims: int, where: str) -> str:
    """The space's own index is walked; the order is only nearly right, so the caller sorts.

    The space's number is written out: a partial index matches no bound parameter in a generic plan.
    """
    number, width = int(space_no), int(dims)
    distance = f"(embedding::halfvec({width})) <=> %(question)b::halfvec({width})"
    return f"""
SELECT {COLUMNS}, {distance} AS distance FROM pgvector_chunks
WHERE space_no = {number} AND work_id = %(work_id)s{where} ORDER BY {distance} LIMIT %(top_k)s
"""


def bounded_count(space_no: int, where: str) -> str:
    """How many rows the restriction leaves, counted no further than `most`."""
    number = str(int(space_no))
    return f"""
SELECT count(*) FROM (
    SELECT 1 FROM pgvector_chunks WHERE space_no = {number} AND work_id = %(work_id)s{where} LIMIT %(most)s) AS counted
"""
