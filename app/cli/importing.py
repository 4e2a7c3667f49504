"""A folder goes into a knowledge base: what changed is sent, what is sent is watched until it is done."""

import asyncio
import mimetypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.cli.first_key import ClientProblem
from app.cli.folder import FoundFile, sha256_of
from app.cli.rest import Json, Refused, Rest

Result = Literal["ready", "unchanged", "failed", "uploaded"]
FIRST_POLL_S, LONGEST_POLL_S, POLL_GROWTH = 0.3, 3.0, 1.3


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `uploaded` = accepted, and nobody waited for the rest."""

    external_id: str
    result: Result
    code: str = ""
    message: str = ""


class Watch(Protocol):
    """Who looks on."""

    def sent(self, size_bytes: int) -> None:
        """So many more bytes are dealt with; negative when they must be sent again."""
        ...

    def file_done(self) -> None:
        """One more file is at the service, or needs not go there."""
        ...

    def processed(self, done: int, total: int, waiting_for: str | None) -> None:
        """So many documents are through; `waiting_for` = the reason why one of the others waits."""
        ...


async def ensure_knowledge_base(rest: Rest, name: str) -> tuple[Json, bool]:
    """The knowledge base of exactly this name, made when there is none; and whether it was made now."""
    found = await find_knowledge_bases(rest, name)
    if len(found) == 1:
        return found[0], False
    if found:
        raise ClientProblem(several(name, found))
    return await rest.create("/v1/knowledge-bases", {"name": name}), True


async def find_knowledge_bases(rest: Rest, name: str) -> list[Json]:
    """Those of exactly this name among all that the caller can see."""
    return [base async for base in rest.pages("/v1/knowledge-bases") if base["name"] == name]


def several(name: str, found: Sequence[Json]) -> str:
    """The sentence about a name that says too little."""
    ids = "".join(f"\n  {base['id']}  {base.get('description') or ''}".rstrip() for base in found)
    return f"{len(found)} knowledge bases are named {name!r}; choose one with --knowledge-base-id:{ids}"


class FolderImport:
    """One run of `stackroom import`. Everything it does may be done again: the external id says which document."""

    def __init__(self, rest: Rest, knowledge_base_id: str, watch: Watch) -> None:
        self._rest = rest
        self._knowledge_base = f"/v1/knowledge-bases/{knowledge_base_id}"
        self._documents = f"{self._knowledge_base}/documents"
        self._watch = watch
        self._known: dict[str, Json] = {}
        self._awaited: dict[str, str] = {}  # document id -> external id
        self.outcomes: list[Outcome] = []

    async def run(self, files: Sequence[FoundFile], *, parallel: int, wait: bool) -> list[Outcome]:
        """Send what changed, `parallel` files at a time; then wait for the end of processing.

        Raises: Refused or ClientProblem for what concerns the whole run; one file's trouble is its outcome.
        """
        self._known = {doc["external_id"]: doc async for doc in self._rest.pages(self._documents) if doc["external_id"]}
        await self._send_all(iter(files), parallel)
        if wait:
            await self._wait()
        else:
            self.outcomes += [Outcome(external_id, "uploaded") for external_id in self._awaited.values()]
        return sorted(self.outcomes, key=lambda outcome: outcome.external_id)

    async def _send_all(self, files: Iterator[FoundFile], parallel: int) -> None:
        async def sender() -> None:
            for file in files:  # one iterator for all senders
                await self._send(file)
                self._watch.file_done()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(parallel):
                    group.create_task(sender())
        except* (ClientProblem, Refused) as problems:
            raise problems.exceptions[0] from None

    async def _send(self, file: FoundFile) -> None:
        try:
            known = await self._find_unchanged(file)
            if known is not None:
                self._watch.sent(file.size_bytes)
                self._note_unchanged(known)
                return
            answer = await self._rest.upload(
                self._documents,
                file.path,
                {"external_id": file.external_id, "name": file.path.name},
                mimetypes.guess_type(file.path.name)[0] or "application/octet-stream",
                self._watch.sent,
            )
        except OSError as exc:
            self._fail(file, "unreadable", f"The file can't be read: {exc.strerror or exc}.")
        except Refused as refused:
            if refused.status in (403, 404):
                raise  # not this file but the knowledge base is refused
            self._fail(file, refused.code, refused.message)
        else:
            self._awaited[answer["id"]] = file.external_id

    async def _find_unchanged(self, file: FoundFile) -> Json | None:
        """The document that already holds these bytes; None when they must be sent (a failed one is tried again)."""
        known = self._known.get(file.external_id)
        if known is None or known["status"] == "failed" or known["size_bytes"] != file.size_bytes:
            return None
        same = known["sha256"] == await asyncio.to_thread(sha256_of, file.path)
        return known if same else None

    def _note_unchanged(self, known: Json) -> None:
        if known["terminal"]:
            self.outcomes.append(Outcome(known["external_id"], "unchanged"))
        else:
            self._awaited[known["id"]] = known["external_id"]

    def _fail(self, file: FoundFile, code: str, message: str) -> None:
        self.outcomes.append(Outcome(file.external_id, "failed", code, message))

    async def _wait(self) -> None:
        """Look at the counts until nothing is pending, and at the list now and then: others may upload here too."""
        total, pause_s, looks = len(self._awaited), FIRST_POLL_S, 0
        while self._awaited:
            counts = (await self._rest.get(self._knowledge_base))["document_counts"]
            pending = counts["queued"] + counts["processing"]
            if pending == 0 or looks % 8 == 7:
                await self._collect(total, everything_is_over=pending == 0)
            else:
                self._watch.processed(max(total - pending, total - len(self._awaited)), total, None)
            if self._awaited:
                await asyncio.sleep(pause_s)
                pause_s, looks = min(pause_s * POLL_GROWTH, LONGEST_POLL_S), looks + 1

    async def _collect(self, total: int, *, everything_is_over: bool) -> None:
        """Take the finished ones out of the awaited; one that is no longer listed was deleted meanwhile."""
        waiting_for: str | None = None
        listed: set[str] = set()
        async for document in self._rest.pages(self._documents):
            listed.add(document["id"])
            if document["id"] not in self._awaited:
                continue
            if document["terminal"]:
                self.outcomes.append(_finished(document, self._awaited.pop(document["id"])))
            elif document["error"]:
                waiting_for = document["error"]["message"]
        for gone in [document_id for document_id in self._awaited if everything_is_over and document_id not in listed]:
            self.outcomes.append(
                Outcome(self._awaited.pop(gone), "failed", "deleted", "Somebody deleted it meanwhile.")
            )
        self._watch.processed(total - len(self._awaited), total, waiting_for)


def _finished(document: Json, external_id: str) -> Outcome:
    error = document["error"]
    if document["status"] == "failed":
        return Outcome(external_id, "failed", error["code"] if error else "", error["message"] if error else "")
    warnings = document.get("warnings") or []
    return Outcome(
        external_id,
        "ready",
        ", ".join(warning["code"] for warning in warnings),
        " ".join(warning["message"] for warning in warnings),
    )
