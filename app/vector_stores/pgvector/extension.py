"""The database's side of pgvector: the extension `vector`, checked before anything is changed."""

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from app.vector_stores.contract import VectorStoreMisconfigured

LEAST_VERSION = (0, 8)  # iterative index scans


class VectorExtensionMissing(VectorStoreMisconfigured):
    """The database lacks the extension `vector`, and this login may not create it."""

    code = "vector_extension_missing"


def ensure_vector_extension(connection: Connection) -> None:
    """See that the extension `vector` is there and recent enough; create it where that is permitted.

    Changes nothing else, so call it before the first migration.
    Raises: VectorExtensionMissing, with the exact SQL for the database's administrator.
    """
    version = _version(connection)
    if version is None:
        try:
            with connection.begin_nested():
                connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))
        except DBAPIError as exc:
            raise VectorExtensionMissing(_what_to_do(connection)) from exc
        version = _version(connection)
    if version is None or _parsed(version) < LEAST_VERSION:
        raise VectorExtensionMissing(
            f"the extension 'vector' is {version}, and 0.8 or later is needed; once the server has it, "
            "a superuser of this database runs: ALTER EXTENSION vector UPDATE;"
        )


def _version(connection: Connection) -> str | None:
    found = connection.execute(text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")).scalar()
    return None if found is None else str(found)


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _what_to_do(connection: Connection) -> str:
    database = connection.execute(text("SELECT quote_ident(current_database())")).scalar()
    offered = connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")).scalar()
    first = "" if offered else "pgvector is not installed on the server; install it (0.8 or later) there first. Then "
    return (
        f"the extension 'vector' is missing and this login may not create it. {first}"
        f"A superuser runs, connected to the database {database}: CREATE EXTENSION vector;"
    )
