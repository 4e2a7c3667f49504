"""Which version of the extraction made a text; imports no reader."""

from importlib.metadata import version

EXTRACTION_VERSION = 1  # raise it with every change that alters the text of some file
LIBRARIES = ("chardet", "lxml", "pypdfium2", "resiliparse")


def fingerprint() -> str:
    """Own version and those of the libraries that decide what a text is, for example `1;chardet=7.7.0;…`."""
    return ";".join([str(EXTRACTION_VERSION), *(f"{library}={version(library)}" for library in LIBRARIES)])
