"""Doors of uploads: they authorise first and then read the body themselves, as a stream."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse

from app.documents import multipart, schemas
from app.documents.attributes import Attributes
from app.documents.multipart import PartBegin, PartData, PartEnd
from app.documents.uploading import Accepted, Fields, Place, Stored, Uploader
from app.errors import FieldFault, Invalid, TooLarge
from app.http.openapi import problems
from app.http.shapes import Name
from app.identity.dependencies import CallerDep, needs

router = APIRouter(prefix="/v1", tags=["documents"])
IdempotencyKeyHeader = Annotated[str | None, Header(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
ENVELOPE_BYTES = 1024 * 1024  # what the multipart envelope and its fields may add to the file
_FIELDS: dict[str, TypeAdapter[Any]] = {
    "name": TypeAdapter(Name),
    "external_id": TypeAdapter(schemas.ExternalId),
    "attributes": TypeAdapter(Attributes),
}
SCHEMAS = {
    "DocumentUpload": {
        "type": "object",
        "title": "DocumentUpload",
        "description": "A file with what is to be known about it.",
        "required": ["file"],
        "additionalProperties": False,
        "properties": {
            "file": {"type": "string", "format": "binary", "title": "File"},
            "name": {
                "type": "string",
                "title": "Name",
                "minLength": 1,
                "maxLength": 255,
                "description": "Without it the file's own name.",
            },
            "external_id": {
                "type": "string",
                "title": "External Id",
                "minLength": 1,
                "maxLength": 1024,
                "description": "The sender's own key: the same one again is a new revision of that document.",
            },
            "attributes": {"type": "string", "title": "Attributes", "description": "A JSON object, as text."},
        },
    }
}
_MULTIPART = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/DocumentUpload"}}},
    }
}
_RAW = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_LOCATION = {"Location": {"description": "The document's path.", "schema": {"type": "string"}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": schemas.DocumentAnswer,
        "description": "The document existed with these bytes",
        "headers": _LOCATION,
    },
    202: {
        "model": schemas.DocumentAnswer,
        "description": "Accepted; follow `Location` until it is terminal",
        "headers": _LOCATION,
    },
    **problems(409, 507),
}


async def _upload_document(
    request: Request,
    caller: CallerDep,
    knowledge_base_id: UUID,
    idempotency_key: IdempotencyKeyHeader = None,
) -> JSONResponse:
    """Upload a file. It is extracted, chunked and embedded after the answer."""
    uploader = _uploader(request)
    place = await uploader.authorise(caller, knowledge_base_id)
    boundary = multipart.boundary_of(request.headers.get("content-type", ""))
    _refuse_early(request, uploader, envelope=ENVELOPE_BYTES)
    ticket = await uploader.begin(place, f"upload:{knowledge_base_id}", idempotency_key)
    async with uploader.giving_up(place, ticket):
        stored, fields = await _read_multipart(request, uploader, place, boundary)
        return _accepted(await uploader.accept(caller, place, stored, fields, ticket))


router.post(
    "/knowledge-bases/{knowledge_base_id}/documents",
    operation_id="upload_document",
    status_code=202,
    responses=_ANSWERS,
    openapi_extra=_MULTIPART,
    dependencies=[needs("write")],
)(_upload_document)
router.post(
    "/knowledge-bases/{knowledge_base_id}/chunk",
    operation_id="upload_document_alias",
    status_code=202,
    responses=_ANSWERS,
    openapi_extra=_MULTIPART,
    dependencies=[needs("write")],
)(_upload_document)


@router.post(
    "/knowledge-bases/{knowledge_base_id}/documents/text",
    operation_id="upload_text",
    status_code=202,
    responses=_ANSWERS,
    dependencies=[needs("write")],
)
async def upload_text(
    request: Request,
    caller: CallerDep,
    knowledge_base_id: UUID,
    body: schemas.TextUpload,
    idempotency_key: IdempotencyKeyHeader = None,
) -> JSONResponse:
    """Add a document given as text."""
    uploader = _uploader(request)
    place = await uploader.authorise(caller, knowledge_base_id)
    ticket = await uploader.begin(place, f"text:{knowledge_base_id}", idempotency_key)
    suffix = {"text/plain": "txt", "text/markdown": "md", "text/html": "html"}[body.content_type]
    fields = Fields(
        name=body.name,
        file_name=f"document.{suffix}",
        declared_type=body.content_type,
        external_id=body.external_id,
        attributes=body.attributes,
    )
    async with uploader.giving_up(place, ticket):
        stored = await uploader.store(place, _once(body.text.encode()))
        return _accepted(await uploader.accept(caller, place, stored, fields, ticket))


@router.put(
    "/documents/{document_id}/content",
    operation_id="replace_document_content",
    status_code=202,
    responses=_ANSWERS,
    openapi_extra=_RAW,
    dependencies=[needs("write")],
)
async def replace_document_content(
    request: Request, caller: CallerDep, document_id: UUID, idempotency_key: IdempotencyKeyHeader = None
) -> JSONResponse:
    """Replace a document's bytes by the raw body; the old text answers searches until the new one is ready."""
    uploader = _uploader(request)
    place = await uploader.authorise_replacement(caller, document_id)
    _refuse_early(request, uploader, envelope=0)
    ticket = await uploader.begin(place, f"replace:{document_id}", idempotency_key)
    async with uploader.giving_up(place, ticket):
        stored = await uploader.store(place, request.stream())
        declared = request.headers.get("content-type")
        accepted = await uploader.accept(caller, place, stored, uploader.replacement(place, declared), ticket)
    return _accepted(accepted)


def _uploader(request: Request) -> Uploader:
    uploader: Uploader = request.app.state.uploader
    return uploader


def _refuse_early(request: Request, uploader: Uploader, *, envelope: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > uploader.max_upload_bytes + envelope:
        raise TooLarge(
            f"A file may have at most {uploader.max_upload_bytes} bytes.", max_bytes=uploader.max_upload_bytes
        )


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _read_multipart(request: Request, uploader: Uploader, place: Place, boundary: bytes) -> tuple[Stored, Fields]:
    """Store the part named `file`, collect the others. Raises: Invalid with the field's location."""
    events = multipart.parts(request.stream(), boundary)
    stored: Stored | None = None
    begin: PartBegin | None = None
    values: dict[str, Any] = {}
    try:
        async for event in events:
            if not isinstance(event, PartBegin):
                continue
            if event.name == "file":
                if stored is not None:
                    raise _fault("file", "send exactly one file")
                begin = event
                stored = await uploader.store(place, _part(events))
            elif event.name in _FIELDS:
                values[event.name] = _parse(event.name, await _small(event.name, events))
            else:
                raise _fault(event.name[:64], "unknown field")
        if stored is None or begin is None:
            raise _fault("file", "this field is required")
        return stored, _fields(begin, values)
    except BaseException:
        if stored is not None:
            await uploader.discard(place, stored)
        raise


async def _part(events: AsyncIterator[multipart.Event]) -> AsyncIterator[bytes]:
    async for event in events:
        if isinstance(event, PartEnd):
            return
        if isinstance(event, PartData):
            yield event.data
    raise multipart.malformed()


async def _small(name: str, events: AsyncIterator[multipart.Event]) -> bytes:
    value = b""
    async for data in _part(events):
        value += data
        if len(value) > multipart.MAX_FIELD_BYTES:
            raise _fault(name, f"may have at most {multipart.MAX_FIELD_BYTES} bytes")
    return value


def _parse(name: str, raw: bytes) -> Any:
    try:
        text = raw.decode()
        value = json.loads(text) if name == "attributes" else text
    except ValueError:
        raise _fault(name, "must be valid UTF-8" if name != "attributes" else "must be a JSON object") from None
    try:
        return _FIELDS[name].validate_python(value)
    except ValidationError as exc:
        raise _fault(name, str(exc.errors()[0]["msg"]).removeprefix("Value error, ")) from None


def _fields(begin: PartBegin, values: dict[str, Any]) -> Fields:
    base = (begin.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    if base in (".", ".."):
        raise _fault("file", "has no usable file name")
    file_name = base or values.get("name") or "upload"
    try:
        _FIELDS["name"].validate_python(file_name)
    except ValidationError as exc:
        raise _fault("file", f"file name: {exc.errors()[0]['msg']}".replace("Value error, ", "")) from None
    return Fields(
        name=values.get("name") or file_name,
        file_name=file_name,
        declared_type=begin.content_type,
        external_id=values.get("external_id"),
        attributes=values.get("attributes"),
    )


def _fault(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}", faults=[FieldFault(("body", field), message)])


def _accepted(accepted: Accepted) -> JSONResponse:
    headers = {"Location": f"/v1/documents/{accepted.body['id']}"}
    return JSONResponse(accepted.body, status_code=accepted.status_code, headers=headers)
