import asyncio
import math
from array import array
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from app.ai_providers.contract import EmbeddingProvider, ProviderMisconfigured, ProviderUnavailable, Vector
from app.ai_providers.local import LocalProvider, LocalSettings
from app.ai_providers.packaged import PackagedTokenizer, open_model
from app.ai_providers.packaged.encoder import Encoder

MODEL = "multilingual-e5-small"
PARAGRAPH = "The lighthouse stands on the northern cliff and was built in 1867 by the harbour board. " * 6


@pytest.fixture
async def provider(model_dir: Path) -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(LocalSettings(model_dir=model_dir, threads=2))
    yield provider
    await provider.close()


def cosine(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_it_is_the_system_default_for_embedding() -> None:
    manifest = LocalProvider.manifest

    assert (manifest.id, manifest.category, manifest.system_plugin) == ("local", "ai-provider", True)
    assert manifest.default_for_capabilities == ("embedding",)


async def test_it_satisfies_the_contract_and_states_its_models_facts(provider: LocalProvider) -> None:
    assert isinstance(provider, EmbeddingProvider)
    facts = provider.find_model(MODEL)
    assert facts is not None
    assert (facts.dimensions, facts.max_input_tokens, facts.fusion_weight, facts.calibration) == (384, 512, 0.6, 0.82)
    assert (facts.query_prefix, facts.document_prefix) == ("query: ", "passage: ")


async def test_vectors_are_unit_float32_of_the_models_width(provider: LocalProvider) -> None:
    for vector in await provider.create_embedding(["bread", "面包", PARAGRAPH], role="document", model=MODEL):
        assert isinstance(vector, array)
        assert (vector.typecode, len(vector)) == ("f", 384)
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


async def test_a_question_is_nearest_to_its_answer_across_languages(provider: LocalProvider) -> None:
    answers = ["Das Brot backt vierzig Minuten im Ofen.", "Der Leuchtturm wurde 1867 gebaut.", "Katzen schlafen viel."]
    passages = await provider.create_embedding(answers, role="document", model=MODEL)
    (question,) = await provider.create_embedding(["When was the lighthouse built?"], role="query", model=MODEL)

    scores = [cosine(question, passage) for passage in passages]

    assert scores.index(max(scores)) == 1


async def test_each_role_has_its_prefix(provider: LocalProvider, model_dir: Path) -> None:
    encoder = Encoder.load(open_model(model_dir))

    (query,) = await provider.create_embedding(["bread"], role="query", model=MODEL)
    (document,) = await provider.create_embedding(["bread"], role="document", model=MODEL)

    assert query == encoder.embed("query: bread", "")
    assert document == encoder.embed("passage: bread", "")
    assert query != document


async def test_a_vector_is_the_same_to_the_bit_whatever_its_neighbours(provider: LocalProvider) -> None:
    texts = [f"{PARAGRAPH[: 40 * number]} {number}" for number in range(1, 13)]
    alone = [(await provider.create_embedding([text], role="document", model=MODEL))[0] for text in texts]

    together = await provider.create_embedding(texts[::-1], role="document", model=MODEL)

    assert together[::-1] == alone


async def test_a_long_text_is_the_length_weighted_mean_of_its_windows(model_dir: Path) -> None:
    encoder, tokenizer = Encoder.load(open_model(model_dir)), PackagedTokenizer.open(model_dir)
    text = " ".join(f"bread lighthouse {number} harbour" for number in range(270))
    starts = tokenizer.token_starts(text)
    size = 512 - 2 - len(tokenizer.encode("passage: "))
    count = -(-len(starts) // size)
    assert count == 4
    lengths = [len(starts) // count + (number < len(starts) % count) for number in range(count)]
    cuts = [starts[sum(lengths[:number])] for number in range(count)] + [len(text)]
    windows = [encoder.embed(text[a:b], "passage: ") for a, b in pairwise(cuts)]

    whole = encoder.embed(text, "passage: ")

    mean = array("f", [sum(n * w[i] for n, w in zip(lengths, windows, strict=True)) for i in range(384)])
    assert cosine(whole, mean) / math.sqrt(cosine(mean, mean)) == pytest.approx(1, abs=1e-3)
    assert cosine(whole, windows[0]) < 0.9999


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800", "\u200d", "x" * 30_000])
async def test_odd_texts_get_a_vector_too(provider: LocalProvider, text: str) -> None:
    (vector,) = await provider.create_embedding([text], role="document", model=MODEL)

    assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


async def test_no_texts_give_no_vectors(provider: LocalProvider) -> None:
    assert await provider.create_embedding([], role="document", model=MODEL) == []


async def test_a_query_does_not_wait_behind_an_import(provider: LocalProvider) -> None:
    await provider.check()
    importing = asyncio.create_task(provider.create_embedding([PARAGRAPH] * 400, role="document", model=MODEL))
    await asyncio.sleep(0.05)

    for number in range(5):
        await provider.create_embedding([f"question {number}"], role="query", model=MODEL)

    assert not importing.done()
    importing.cancel()


async def test_the_event_loop_goes_on_while_documents_are_embedded(provider: LocalProvider) -> None:
    ticks = 0
    importing = asyncio.create_task(provider.create_embedding([PARAGRAPH] * 20, role="document", model=MODEL))
    while not importing.done():
        await asyncio.sleep(0.001)
        ticks += 1

    assert ticks > 10


async def test_a_cancelled_import_leaves_its_threads_to_the_next(provider: LocalProvider) -> None:
    importing = asyncio.create_task(provider.create_embedding([PARAGRAPH] * 20_000, role="document", model=MODEL))
    await asyncio.sleep(0.2)
    importing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await importing

    async with asyncio.timeout(30):
        assert len(await provider.create_embedding(["next"], role="document", model=MODEL)) == 1


@pytest.mark.parametrize(("model", "dimensions"), [("text-embedding-3-small", None), (MODEL, 256)])
async def test_another_model_or_width_is_refused(provider: LocalProvider, model: str, dimensions: int | None) -> None:
    with pytest.raises(ProviderMisconfigured, match=MODEL):
        await provider.create_embedding(["bread"], role="query", model=model, dimensions=dimensions)


async def test_the_model_is_built_on_first_use(tmp_path: Path) -> None:
    provider = LocalProvider(LocalSettings(model_dir=tmp_path / "models" / "e5", threads=2))
    assert not list(tmp_path.iterdir())

    vectors = await provider.create_embedding(["a", "b", "c"], role="document", model=MODEL)
    await provider.close()

    assert len(vectors) == 3
    open_model(tmp_path / "models" / "e5", verify=True)


async def test_a_place_that_cannot_be_written_is_a_transient_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    provider = LocalProvider(LocalSettings(model_dir=tmp_path / "file" / "model"))

    with pytest.raises(ProviderUnavailable, match="cannot be built"):
        await provider.create_embedding(["a"], role="query", model=MODEL)
    await provider.close()


async def test_without_a_directory_the_setting_is_named() -> None:
    provider = LocalProvider(LocalSettings())

    with pytest.raises(ProviderMisconfigured, match="model_dir"):
        await provider.create_embedding(["a"], role="query", model=MODEL)
    await provider.close()


async def test_check_reports_model_width_and_latency(provider: LocalProvider) -> None:
    report = await provider.check()

    assert (report["model"], report["dimensions"], report["url"]) == (MODEL, 384, None)
    assert isinstance(report["latency_ms"], float)


async def test_a_closed_provider_says_so_and_closing_twice_is_harmless(provider: LocalProvider) -> None:
    await provider.check()
    await provider.close()
    await provider.close()

    with pytest.raises(ProviderUnavailable, match="closed"):
        await provider.create_embedding(["a"], role="query", model=MODEL)
