import os
from pathlib import Path

import pytest

from app.ai_providers.packaged import build_model

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The packaged model, built once per machine: in `KB_MODEL_DIR`, else in `.cache/` of the repository."""
    directory = Path(os.environ.get("KB_MODEL_DIR") or REPOSITORY / ".cache" / "model")
    build_model(directory)
    return directory
