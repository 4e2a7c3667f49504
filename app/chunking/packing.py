"""Units to chunks: greedy, in one pass, each chunk as full as structure allows."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.chunking.context import Context, Contexts
from app.chunking.contract import ChunkSettings
from app.chunking.cutting import best_cut, overlap_start
from app.chunking.emitting import Emitter
from app.chunking.ruler import Ruler
from app.chunking.units import Unit

_DRIFT = 2  # tokens kept free when cutting inside a word or sentence, where counts are a token or two off
_BALANCE = 1.5  # code or a table this many chunks long or less is cut near its middle


@dataclass(slots=True)
class Draft:
    """The chunk being filled: text[start:end], or nothing but a place to begin while start == end."""

    start: int
    end: int
    path: tuple[str, ...]
    context: Context
    budget: int


class Packer:
    """Fills chunks. Headings wait in `_pending` until the text they head has found its chunk."""

    def __init__(
        self,
        text: str,
        settings: ChunkSettings,
        *,
        ruler: Ruler,
        contexts: Contexts,
        emitter: Emitter,
        reserved_tokens: int,
    ) -> None:
        self._text = text
        self._size = settings.size_tokens
        self._overlap = settings.overlap_tokens
        self._room = settings.size_tokens - reserved_tokens
        self._ruler = ruler
        self._contexts = contexts
        self._emitter = emitter
        self._draft: Draft | None = None
        self._pending: list[Unit] = []

    def pack(self, units: Iterable[Unit]) -> None:
        """Emit the chunks of all units, in order."""
        for unit in units:
            if unit.kind == "heading":
                self._take_heading(unit)
            else:
                self._take_body(unit)
        self._settle_headings()
        self._flush()

    def _take_heading(self, heading: Unit) -> None:
        """Let a heading wait for its text, after closing the chunk before it if that is full enough.

        Full enough: half full, or an eighth before a heading of level 1 or 2. Headings that alone would take three
        quarters of what a chunk holds do not wait: there would be little room for the text.
        """
        draft = self._draft
        if draft is not None and not self._pending:
            filled = self._ruler.count(draft.start, draft.end)
            if filled * 2 >= self._size or (heading.level <= 2 and filled * 8 >= self._size):
                self._flush()
        most = (self._room - self._size // 4) * 3 // 4
        if self._pending and not self._ruler.fits(self._pending[0].start, heading.end, most):
            self._settle_headings()
        if self._ruler.fits(heading.start, heading.end, most):
            self._pending.append(heading)
        else:
            self._take_body(heading)

    def _settle_headings(self) -> None:
        """Treat headings that will get no text as text."""
        if self._pending:
            first, last = self._pending[0], self._pending[-1]
            self._pending = []
            self._take_body(replace(last, start=first.start, body_start=first.start, context_path=first.context_path))

    def _take_body(self, unit: Unit) -> None:
        """Add a unit, with the headings waiting for it, to the chunk; or begin another; or spread it over several.

        A chunk less than a quarter full is filled up with the beginning of prose; code and tables stay whole.
        """
        draft = self._draft
        if draft is not None:
            if self._fits(draft, unit.end):
                self._commit(draft, unit)
                return
            if unit.kind in ("code", "table", "heading") or self._ruler.count(draft.start, draft.end) * 4 >= self._size:
                self._flush()
        lead = self._pending[0] if self._pending else unit
        draft = self._draft or self._open(lead, unit)
        self._spread(draft, unit, lead)

    def _spread(self, draft: Draft, unit: Unit, lead: Unit) -> None:
        block_start = unit.start
        while not self._fits(draft, unit.end):
            cut = self._cut(draft, unit)
            if cut is None:
                self._flush()
                draft = self._open(lead, unit)
                continue
            again = self._overlap_start(draft, unit, block_start=block_start, cut=cut)
            self._commit(draft, replace(unit, end=cut))
            self._flush()
            left = self._text[cut : unit.end]
            unit = unit.rest_from(unit.end - len(left.lstrip()))
            if unit.start >= unit.end:
                return
            lead = unit
            draft = self._open(unit, unit, start=min(again, unit.start))
        self._commit(draft, unit)

    def _open(self, lead: Unit, body: Unit, *, start: int | None = None) -> Draft:
        """Begin a chunk at `lead`, the first of the headings before `body` or `body` itself."""
        continues = lead.start == lead.body_start and lead.kind in ("code", "table")
        context = self._contexts.of(lead.context_path, lead.repeated if continues else "")
        at = lead.start if start is None else start
        self._draft = Draft(at, at, body.path, context, self._room - context.tokens)
        return self._draft

    def _commit(self, draft: Draft, unit: Unit) -> None:
        draft.end = unit.end
        self._pending = []

    def _flush(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None and draft.end > draft.start:
            self._emitter.emit(draft.start, draft.end, path=draft.path, context=draft.context)

    def _fits(self, draft: Draft, end: int) -> bool:
        if not self._ruler.fits(draft.start, end, draft.budget):
            return False
        return self._emitter.excess(draft.start, end, context=draft.context) <= 0

    def _cut(self, draft: Draft, unit: Unit) -> int | None:
        """Return where in the unit the chunk should end; None when other text leaves no room for any of it."""
        budget = draft.budget - _DRIFT
        cut = None
        for _ in range(4):
            limit = min(self._ruler.reach(draft.start, budget), unit.end - 1)
            if limit <= unit.start:
                if draft.end > draft.start:
                    return None
                limit = unit.start + 1
            cut = best_cut(self._text, unit, start=draft.start, aim=self._aim(draft, unit, limit), limit=limit)
            excess = self._emitter.excess(draft.start, cut, context=draft.context)
            if excess <= 0:
                break
            budget = max(1, budget - excess - 1)
        return cut

    def _aim(self, draft: Draft, unit: Unit, limit: int) -> int:
        left = self._ruler.count(draft.start, unit.end)
        if left > draft.budget * _BALANCE:
            return limit
        return min(limit, self._ruler.reach(draft.start, left * 11 // 20 + 1))

    def _overlap_start(self, draft: Draft, unit: Unit, *, block_start: int, cut: int) -> int:
        """Return where the next chunk begins to repeat: whole sentences of this block, within the overlap."""
        tokens = min(self._overlap, draft.budget // 2)
        if tokens <= 0 or not unit.is_prose:
            return cut
        first = max(self._ruler.back(cut, tokens), block_start, draft.start + 1)
        return overlap_start(self._text, first, cut) if first < cut else cut
