from pathlib import Path

import pytest

from tests.model import packaged_model


@pytest.fixture(scope="session")
def model_dir() -> Path:
    return packaged_model()
