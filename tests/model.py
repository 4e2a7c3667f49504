"""The packaged model for tests, built once per machine: in `KB_MODEL_DIR`, else in `.cache/` of the repository."""

import os
from functools import cache
from pathlib import Path

from app.ai_providers.packaged import build_model

REPOSITORY = Path(__file__).parents[1]


@cache
def packaged_model() -> Path:
    directory = Path(os.environ.get("KB_MODEL_DIR") or REPOSITORY / ".cache" / "model")
    build_model(directory)
    return directory
