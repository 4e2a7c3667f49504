"""Builds the packaged model once: data file in; int8 graph, word table, tokenizer and manifest out."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from app.ai_providers.contract import BadEmbedding
from app.ai_providers.packaged.encoder import LEAST_COSINE, Encoder, open_session, open_words
from app.ai_providers.packaged.files import (
    FILE_NAMES,
    FORMAT,
    MANIFEST_FILE,
    MODEL_NAME,
    ModelFiles,
    ModelNotBuilt,
    Reference,
    describe_file,
    open_model,
)
from app.ai_providers.packaged.graph import build_graph
from app.ai_providers.packaged.source import SOURCE_PACKAGE, SOURCE_SHA256, Source, find_source
from app.ai_providers.packaged.tokenizer import PackagedTokenizer
from app.ai_providers.packaged.vocabulary import build_tokenizer

Progress = Callable[[str, float], None]

_REFERENCE_TEXTS = (
    ("query: ", "How do I renew a library card?"),
    ("passage: ", "The reading room opens at nine. Cards are renewed at the desk, or by post."),
    ("passage: ", "Der Lesesaal öffnet um neun Uhr; Ausweise werden am Schalter verlängert."),
    ("passage: ", "阅览室九点开门,借书证可在服务台续期。"),
)


def build_model(
    target_dir: Path, source: Path | None = None, progress: Progress | None = None, *, verify: bool = False
) -> ModelFiles:
    """The model in `target_dir`, built there when it is not; about 90 MB on disk, some ten seconds.

    A valid model is returned at once: sizes are compared, with `verify` checksums too. `source` is the data file when
    it is not in the installed wheel. `progress` gets a step's name and the share done before it, 0 to 1. The directory
    appears complete or not at all; of several builders, also in other processes, one builds and the others wait.
    Raises: ProviderMisconfigured for a missing or wrong source; OSError when the directory cannot be written.
    """
    with contextlib.suppress(ModelNotBuilt):
        return open_model(target_dir, verify=verify)
    target_dir.parent.mkdir(parents=True, exist_ok=True)
    with _only_builder(target_dir) as is_alone:
        with contextlib.suppress(ModelNotBuilt):
            return open_model(target_dir, verify=verify)
        for leftover in target_dir.parent.glob(f".{target_dir.name}.building-*") if is_alone else ():
            shutil.rmtree(leftover, ignore_errors=True)  # of a builder that was killed
        work_dir = Path(tempfile.mkdtemp(prefix=f".{target_dir.name}.building-", dir=target_dir.parent))
        try:
            _build_in(work_dir, source, progress or (lambda step, share: None))
            _put_in_place(work_dir, target_dir)
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)
    return open_model(target_dir)


def _build_in(work_dir: Path, source_path: Path | None, progress: Progress) -> None:
    progress("checking the data file", 0.0)
    source = Source(find_source(source_path))
    progress("writing the word table", 0.1)
    files = ModelFiles(work_dir, "", ())
    files.words.write_bytes(source.raw("emb.word").data)
    progress("writing the tokenizer", 0.2)
    files.tokenizer.write_bytes(build_tokenizer(source.vocabulary))
    progress("writing the int8 graph", 0.5)
    files.graph.write_bytes(build_graph(source, quantised=True))
    progress("computing reference vectors", 0.7)
    references = _compute_references(files, build_graph(source, quantised=False))
    manifest = {
        "format": FORMAT,
        "model": MODEL_NAME,
        "source": {"package": SOURCE_PACKAGE, "sha256": SOURCE_SHA256},
        "files": {name: describe_file(work_dir / name) for name in FILE_NAMES},
        "references": [{"prefix": r.prefix, "text": r.text, "vector": r.vector} for r in references],
    }
    (work_dir / MANIFEST_FILE).write_text(json.dumps(manifest, ensure_ascii=False, indent=1), encoding="utf-8")
    work_dir.chmod(0o755)  # mkdtemp makes it private; another user of the machine may run the service
    progress("done", 1.0)


def _compute_references(files: ModelFiles, exact_graph: bytes) -> list[Reference]:
    tokenizer, words = PackagedTokenizer(files), open_words(files.words)
    exact = Encoder(tokenizer, open_session(exact_graph), words)
    quantised = Encoder(tokenizer, open_session(files.graph), words)
    references = []
    for prefix, text in _REFERENCE_TEXTS:
        reference = Reference(prefix, text, tuple(round(value, 6) for value in exact.embed(text, prefix)))
        if quantised.compare(reference) < LEAST_COSINE:
            raise BadEmbedding("the int8 graph built here is too far from the float32 graph")
        references.append(reference)
    return references


def _put_in_place(work_dir: Path, target_dir: Path) -> None:
    if target_dir.exists():  # damaged or of another version
        aside = Path(tempfile.mkdtemp(prefix=f".{target_dir.name}.building-", dir=target_dir.parent))
        target_dir.rename(aside / "old")
        work_dir.rename(target_dir)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        work_dir.rename(target_dir)


@contextlib.contextmanager
def _only_builder(target_dir: Path) -> Iterator[bool]:
    """Hold the lock file beside the target; False where the system has no flock: builders may do the work twice."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with (target_dir.parent / f".{target_dir.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield True
