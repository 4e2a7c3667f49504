"""The packaged embedding model, multilingual-e5-small: built once from a data file, no network, no vendor's service."""

from app.ai_providers.packaged.building import build_model
from app.ai_providers.packaged.files import ModelFiles, ModelNotBuilt, Reference, open_model
from app.ai_providers.packaged.tokenizer import PackagedTokenizer

__all__ = ["ModelFiles", "ModelNotBuilt", "PackagedTokenizer", "Reference", "build_model", "open_model"]
