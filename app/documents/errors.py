"""Errors of the documents."""

from app.errors import Conflict, Invalid, NotFound, Unavailable


class DocumentNotFound(NotFound):
    """No such document."""

    code = "document_not_found"


class NoTextYet(NotFound):
    """This document has no text yet: no build of it is live."""

    code = "no_text_yet"


class SameBytesElsewhere(Conflict):
    """Another document of this knowledge base has the same bytes."""

    code = "same_bytes_elsewhere"


class NotRetryable(Conflict):
    """Only a failed or waiting document can be retried."""

    code = "not_retryable"


class NotReady(Conflict):
    """Only a document with a live build can be embedded again."""

    code = "not_ready"


class UploadLost(Unavailable):
    """The upload took too long and its bytes were given up; send it again."""

    code = "upload_lost"


class IdempotencyMismatch(Invalid):
    """This Idempotency-Key was used for another request."""

    code = "idempotency_mismatch"


class IdempotencyRunning(Conflict):
    """The first request with this Idempotency-Key is still running."""

    code = "idempotency_running"
