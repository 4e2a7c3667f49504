"""Write the API description to openapi.json, the same bytes for the same code."""

import json
from pathlib import Path

from app.main import create_app
from app.settings import Settings

TARGET = Path(__file__).parent.parent / "openapi.json"


def main() -> None:
    """Write the file; nothing is connected and no setting of the environment changes the outcome."""
    description = create_app(Settings()).openapi()
    TARGET.write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
