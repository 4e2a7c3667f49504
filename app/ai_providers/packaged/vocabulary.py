"""Writes the tokenizer as a sentencepiece model, from the pieces, scores and replacements of the data file."""

from typing import Any

from app.ai_providers.packaged.source import Vocabulary

_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_UNIGRAM = 1


def build_tokenizer(vocabulary: Vocabulary) -> bytes:
    """A serialised sentencepiece `ModelProto` whose piece ids are the model's word ids.

    Normalisation: what the data file replaces single characters with, and the compositions of several characters
    that sentencepiece's own `nmt_nfkc` has (the data file has none, the original model was trained with them).
    """
    proto = _messages().ModelProto()
    control = {vocabulary.bos, vocabulary.eos, vocabulary.pad, len(vocabulary.pieces) - 1}
    for number, (piece, score) in enumerate(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True)):
        kind = _UNKNOWN if number == vocabulary.unknown else _CONTROL if number in control else _NORMAL
        proto.pieces.add(piece=piece, score=score, type=kind)
    _describe_training(proto.trainer_spec, vocabulary)
    proto.normalizer_spec.name = "multilingual-e5-small"
    proto.normalizer_spec.precompiled_charsmap = _compile_replacements(vocabulary.replacements)
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = True
    proto.normalizer_spec.escape_whitespaces = True
    serialised: bytes = proto.SerializeToString(deterministic=True)
    return serialised


def _describe_training(trained: Any, vocabulary: Vocabulary) -> None:
    trained.model_type = _UNIGRAM
    trained.vocab_size = len(vocabulary.pieces)
    for name in ("bos", "eos", "pad"):
        setattr(trained, f"{name}_id", getattr(vocabulary, name))
        setattr(trained, f"{name}_piece", vocabulary.pieces[getattr(vocabulary, name)])
    trained.unk_id, trained.unk_piece = vocabulary.unknown, vocabulary.pieces[vocabulary.unknown]


def _compile_replacements(replacements: dict[str, str]) -> bytes:
    from sentencepiece import SentencePieceNormalizer, set_min_log_level

    set_min_log_level(1)  # the compiler reports sizes on stderr
    known = SentencePieceNormalizer(rule_name="nmt_nfkc").Decompile()
    rules = {characters: result for characters, result in known if len(characters) > 1} | replacements
    compiled = SentencePieceNormalizer(norm_map=sorted(rules.items()))
    spec = _messages().NormalizerSpec.FromString(compiled.serialized_normalizer_spec())
    table: bytes = spec.precompiled_charsmap
    return table


def _messages() -> Any:
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2
