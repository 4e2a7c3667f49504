"""`python -m app.cli`, for child processes."""

from app.cli import main

main()
