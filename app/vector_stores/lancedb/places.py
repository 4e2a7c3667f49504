"""Which table holds what: the one place where tables are named and conditions are written."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from app.vector_stores.contract import Ids, Space, VectorStoreRefused

INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Place:
    """A space of a Work. Without a Work there is no table's name and no condition."""

    work_id: UUID
    space: Space

    @property
    def table(self) -> str:
        """The table's name: lower-case hexadecimal, whatever the space's model is called."""
        if not isinstance(self.work_id, UUID):
            raise VectorStoreRefused("a Work's id is not a UUID")
        digest = hashlib.sha256(self.space.key.encode("utf-8", "surrogatepass")).hexdigest()
        return f"kb_{self.work_id.hex}_{digest[:32]}"

    def where(
        self,
        *,
        document_ids: Ids | None = None,
        knowledge_base_ids: Ids | None = None,
        build: int | None = None,
        before_build: int | None = None,
    ) -> str | None:
        """A condition on the rows of this place as SQL, of UUIDs and integers only; None = every row.

        `None` is no restriction; an empty set is a condition that nothing meets.
        """
        parts = []
        for column, ids in (("document_id", document_ids), ("knowledge_base_id", knowledge_base_ids)):
            if ids is not None:
                parts.append(f"{column} IN ({', '.join(map(_literal, ids))})" if ids else "false")
        if build is not None:
            parts.append(f"build = {_literal(build)}")
        if before_build is not None:
            parts.append(f"build < {_literal(before_build)}")
        return " AND ".join(parts) or None


def _literal(value: object) -> str:
    """A UUID or a 64-bit integer in SQL; anything else is refused, strings above all."""
    if type(value) is int and value in INT64:
        return str(value)
    if isinstance(value, UUID):
        return f"X'{value.int:032x}'"
    raise VectorStoreRefused("an id is not a UUID, or a number is no 64-bit integer")
