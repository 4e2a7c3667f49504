"""LanceDB's errors as ours. Most of them are a ValueError, RuntimeError or OSError: only their text tells more."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.errors import AppError
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreRefused, VectorStoreUnavailable


class TableGone(Exception):
    """There is no such table: nobody has written there, or it was dropped."""


class Contended(VectorStoreUnavailable):
    """Others have changed the table meanwhile; the same call made again will see what they did."""


GONE: Final = re.compile(r"table '[^']*' was not found|table not found|not found: \S*/_versions")
TAKEN: Final = re.compile(r"commit conflict|concurrent (trans|writ|modif)|please retry|already exists|not found: |"
                          r"failed to (persist|shutdown)|no such file")  # fmt: skip
FULL: Final = re.compile(r"no space left|disk quota|os error (28|122)\b|storage ?full")
DENIED: Final = re.compile(
    r"access ?denied|status: 40[13]|forbidden|unauthorized|unauthenticated|permission ?denied|invalidaccesskeyid"
    r"|signaturedoesnotmatch|nosuchbucket|credential|read-only file system|not a directory|notadirectory"
    r"|os error (1|13|20|30)\b|no object store provider|unable to created? lance dataset"
)
AWAY: Final = re.compile(
    r"connect|timed? ?out|timeout|dns|unreachable|reset by peer|status: (429|5\d\d)|slowdown|throttl|retryerror"
    r"|error sending request|too many requests|service ?unavailable|too many open files|os error \d+|lanceerror\(io\)"
)

# By name, since the classes are known only where the package is; `test_lancedb_failures` compares both.
PERMANENT: Final = frozenset(
    {
        "lancedb.exceptions.MissingValueError",
        "lancedb.exceptions.MissingColumnError",
        "lancedb.exceptions.JobNotFoundError",
        "lancedb.exceptions.JobCancelledError",
        "lancedb.exceptions.JobFailedError",
        "pyarrow.lib.ArrowCapacityError",
        "pyarrow.lib.ArrowException",
        "pyarrow.lib.ArrowIndexError",
        "pyarrow.lib.ArrowInvalid",
        "pyarrow.lib.ArrowKeyError",
        "pyarrow.lib.ArrowNotImplementedError",
        "pyarrow.lib.ArrowSerializationError",
        "pyarrow.lib.ArrowTypeError",
        "pyo3_runtime.PanicException",
    }
)
TRANSIENT: Final = frozenset(
    {
        "lancedb.remote.errors.LanceDBClientError",
        "lancedb.remote.errors.HttpError",
        "lancedb.remote.errors.RetryError",
        "pyarrow.lib.ArrowCancelled",
        "pyarrow.lib.ArrowMemoryError",
    }
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn whatever LanceDB raises into the contract's errors or `TableGone`, cause attached, without its text."""
    try:
        yield
    except (AppError, TableGone):
        raise
    except TimeoutError as exc:
        raise VectorStoreUnavailable("the vector store took too long") from exc
    except Exception as exc:
        raise ours(exc) from exc
    except BaseException as exc:
        if name_of(type(exc)) in PERMANENT:  # a panic of the engine is no Exception
            raise ours(exc) from exc
        raise


def ours(exc: BaseException) -> AppError | TableGone:
    """The error of ours that says what kind of failure this is."""
    name = name_of(type(exc))
    if name in PERMANENT:
        return VectorStoreRefused(f"LanceDB refuses this ({type(exc).__name__})")
    if name in TRANSIENT or isinstance(exc, MemoryError):
        return VectorStoreUnavailable(f"LanceDB does not answer ({type(exc).__name__})")
    text = str(exc).lower()
    if GONE.search(text):
        return TableGone()
    if FULL.search(text):
        return VectorStoreUnavailable("the disk of the vector store is full")
    if DENIED.search(text):
        return VectorStoreMisconfigured("the vector store's place does not exist, or refuses us or our credentials")
    if TAKEN.search(text):
        return Contended("other writers of the vector store were faster, again and again")
    if re.search(r"is closed\b", text):
        return VectorStoreUnavailable("this vector store has been closed")
    if isinstance(exc, OSError) or AWAY.search(text):
        return VectorStoreUnavailable("the vector store does not answer")
    return VectorStoreRefused(f"LanceDB refuses this ({type(exc).__name__})")


def name_of(kind: type[BaseException]) -> str:
    """A class by its module and name."""
    return f"{kind.__module__}.{kind.__name__}"
