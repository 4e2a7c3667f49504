from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.ai_providers.packaged import PackagedTokenizer, open_model
from app.ai_providers.packaged.tokenizer import SEGMENT_CHARACTERS

SCRIPTS = (
    "The quick brown fox", "Größe und Übermaß", "Съешь ещё этих", "Ξεσκεπάζω την ψυχή", "نص حكيم له سر",
    "דג סקרן שט בים", "ऋषियों को सताने", "นายสังฆภัณฑ์", "天地玄黄宇宙洪荒", "いろはにほへと", "키스의 고유조건은",
    "ვეპხის ტყაოსანი", "မြန်မာ",
)  # fmt: skip
ODDITIES = (
    "\r\n", "\n\n", "\t", "\u3000", "\ufeff", "\u00a0", "\u200b", "\u200d", "\u0301", "e\u0301", "か\u3099", "ﬁ",
    "ﷺ", "㌕", "…", "½", "👨\u200d👩\u200d👧\u200d👦", "👍🏽", "🇨🇭", "\x01", "\x1f", "\x7f", "\x00", "▁", "<s>",
    "<mask>", "\u2028", "𝔘𝔫𝔦", "\U0010ffff", "ㅎㅏㄴ", "\ud800",
)  # fmt: skip

pieces = st.one_of(st.sampled_from(SCRIPTS), st.sampled_from(ODDITIES), st.text(max_size=8), st.just(" "))
texts = st.lists(pieces, max_size=30).map("".join)
long_texts = st.tuples(texts, st.integers(1, 3000), texts).map(lambda parts: parts[0] * parts[1] + parts[2])


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path) -> PackagedTokenizer:
    return PackagedTokenizer.open(model_dir)


def assert_consistent(tokenizer: PackagedTokenizer, text: str) -> None:
    starts = tokenizer.token_starts(text)
    assert list(starts) == sorted(starts)
    assert all(0 <= start < len(text) for start in starts[:1] + starts[-1:])
    assert len(starts) == len(tokenizer.encode(text))


@given(texts)
@example("")
@example("\ufeff")
@example("ﷺ" * 3)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_offsets_ascend_within_the_text_for_every_text(tokenizer: PackagedTokenizer, text: str) -> None:
    assert_consistent(tokenizer, text)


@given(long_texts.filter(lambda text: len(text) < 200_000))
@example("x" * 20_000)
@example("\n" * 20_000)
@example("天地" * 10_000)
@example("e\u0301" * 10_000)
@example("👨‍👩‍👧‍👦" * 3_000)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_offsets_ascend_within_long_texts(tokenizer: PackagedTokenizer, text: str) -> None:
    assert_consistent(tokenizer, text)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("", []),
        (" \r\n\u3000\u200b", []),
        ("house world", [0, 5]),
        ("  house \r\n world ", [2, 7]),
        ("\ufeffhouse", [1]),
        ("house\U0001f642 world", [0, 5, 6]),
        ("fine \ufb01ne", [0, 4]),
        ("cafe\u0301 world", [0, 5]),
    ],
)
def test_starts_count_code_points_of_the_text_as_given(
    tokenizer: PackagedTokenizer, text: str, starts: list[int]
) -> None:
    assert list(tokenizer.token_starts(text)) == starts


def test_long_texts_with_white_space_have_the_tokens_of_a_single_encode(
    tokenizer: PackagedTokenizer, model_dir: Path
) -> None:
    import sentencepiece

    text = "".join(script + ("\n" if number % 7 else "\u3000 ") for number, script in enumerate(SCRIPTS * 120))
    whole = sentencepiece.SentencePieceProcessor(model_file=str(open_model(model_dir).tokenizer))

    assert len(text) > 4 * SEGMENT_CHARACTERS
    assert list(tokenizer.encode(text)) == whole.encode(text)
    assert list(tokenizer.token_starts(text)) == [
        begin for begin, _ in whole.encode(text, out_type="offset_mapping")["offsets"]
    ]


def test_a_cut_where_there_is_no_white_space_adds_no_token(tokenizer: PackagedTokenizer) -> None:
    sentence = "天地玄黄宇宙洪荒日月盈昃辰宿列张。"
    alone = len(tokenizer.encode("。" + sentence)) - len(tokenizer.encode("。"))

    count = len(tokenizer.encode("。" + sentence * 1000))

    assert abs(count - 1000 * alone) <= 2 * (1000 * len(sentence) // SEGMENT_CHARACTERS)


def test_lone_surrogates_keep_their_place(tokenizer: PackagedTokenizer) -> None:
    assert list(tokenizer.token_starts("hello \ud800 world")) == list(tokenizer.token_starts("hello \ufffd world"))


def test_threads_share_one_tokenizer(tokenizer: PackagedTokenizer) -> None:
    texts = [script * 50 for script in SCRIPTS] * 8
    expected = [list(tokenizer.token_starts(text)) for text in texts]

    with ThreadPoolExecutor(8) as pool:
        found = [list(starts) for starts in pool.map(tokenizer.token_starts, texts)]

    assert found == expected


def test_the_fingerprint_is_that_of_the_files(tokenizer: PackagedTokenizer, model_dir: Path) -> None:
    assert tokenizer.fingerprint == open_model(model_dir).tokenizer_fingerprint
