"""Stamping: the coordinates that say that a live build is completely in a generation."""

from typing import LiteralString
from uuid import UUID

from app.db.driver import driver_cursor
from app.db.engine import Transaction
from app.indexing.models import IndexGeneration
from app.indexing.remaining import Live

_LOCKED: LiteralString = """
    select d.live_build, d.deleting_at is not null as deleting, g.state
      from kb_documents d left join index_generations g on g.id = %(generation)b
     where d.id = %(document)b for update of d
"""
_WITHDRAW: LiteralString = """
    delete from index_writes where document_id = %(document)b and generation_id = %(generation)b
       and build = %(build)b and owner = %(owner)b
"""
# Older builds in the generation are pruned by upkeep, as after every go-live.
_STAMP: LiteralString = """
    insert into work_knowledge_chunk_coordinates as c
           (work_id, document_id, generation_id, vector_store_id, instance_id, build, chunk_count, embedding_model,
            embedding_dims, last_embedded_at, prune_pending)
    values (%(work)b, %(document)b, %(generation)b, %(store)s, %(instance)b, %(build)b, %(chunks)b, %(model)s, %(dims)b,
            now(), false)
    on conflict (work_id, document_id, generation_id) do update
       set vector_store_id = excluded.vector_store_id, instance_id = excluded.instance_id, build = excluded.build,
           chunk_count = excluded.chunk_count, embedding_model = excluded.embedding_model,
           embedding_dims = excluded.embedding_dims, last_embedded_at = excluded.last_embedded_at,
           prune_pending = c.prune_pending or (c.build <> excluded.build and excluded.vector_store_id is not null)
"""
_FORGET_REFUSAL: LiteralString = (
    "delete from index_refusals where generation_id = %(generation)b and document_id = %(document)b"
)


async def stamp(
    session: Transaction,
    document: Live,
    generation: IndexGeneration,
    *,
    owner: UUID | None,
    chunks: int,
    must_be_live: bool,
) -> bool:
    """Write the coordinates of a build, `W` being held shared, if it is still what should be there.

    `owner` of the announced write, which goes with it; None where nothing was announced (a lexical generation).
    `must_be_live`: the build has to be the live one; else the caller has just made it so. False: nothing was changed.
    """
    facts = {
        "work": generation.work_id,
        "document": document.document_id,
        "generation": generation.id,
        "store": generation.vector_store_id,
        "instance": generation.store_instance_id,
        "build": document.build,
        "chunks": chunks,
        "model": generation.embedding_model,
        "dims": generation.dims,
        "owner": owner,
    }
    async with driver_cursor(session, names=True) as cursor:
        await cursor.execute(_LOCKED, facts)
        row = await cursor.fetchone()
        if row is None or row["deleting"] or row["state"] not in ("building", "active"):
            return False
        if must_be_live and row["live_build"] != document.build:
            return False
        if owner is not None:
            await cursor.execute(_WITHDRAW, facts)
            if cursor.rowcount != 1:
                return False
        await cursor.execute(_STAMP, facts)
        await cursor.execute(_FORGET_REFUSAL, facts)
    return True
