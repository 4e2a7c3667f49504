"""Embedding mode, model and dimensions."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Invalid
from app.plugins.embedding_choice import EmbeddingChoice, EmbeddingWish, refuse_unoffered, resolve_model


@dataclass(frozen=True)
class Model:
    name: str
    dimensions: int
    other_dimensions: bool = False


SMALL, LARGE = Model("small", 1536, True), Model("large", 3072)


@dataclass(frozen=True)
class Models:
    default_model: str | None = "small"
    models: dict[str, Model] = field(default_factory=lambda: {"small": SMALL, "large": LARGE})

    def find_model(self, name: str, /) -> Model | None:
        return self.models.get(name)


def resolve(**values: Any) -> EmbeddingChoice:
    return resolve_model(**({"provider": Models()} | values))


def test_without_wishes_it_is_the_providers_default() -> None:
    chosen = resolve()

    assert (chosen.mode, chosen.model, chosen.dimensions) == ("platform", "small", 1536)
    assert chosen.levels == {"mode": "none", "model": "provider_default", "dimensions": "provider_default"}


def test_the_later_level_wins() -> None:
    chosen = resolve(
        environment=EmbeddingWish(model="small", dimensions=512),
        organization=EmbeddingWish(model="large"),
        work=EmbeddingWish(model="small", dimensions=256),
    )

    assert (chosen.model, chosen.dimensions) == ("small", 256)
    assert (chosen.levels["model"], chosen.levels["dimensions"]) == ("work", "work")


def test_each_setting_resolves_by_itself() -> None:
    chosen = resolve(environment=EmbeddingWish(dimensions=512), organization=EmbeddingWish(model="small"))

    assert (chosen.model, chosen.dimensions) == ("small", 512)
    assert (chosen.levels["model"], chosen.levels["dimensions"]) == ("organization", "environment_default")


def test_a_model_that_the_provider_does_not_offer_is_skipped_for_the_next_and_the_record_says_so() -> None:
    chosen = resolve(work=EmbeddingWish(model="e5"), environment=EmbeddingWish(model="large"))

    assert (chosen.model, chosen.levels["model"]) == ("large", "environment_default")
    [skipped] = [looked for looked in chosen.looked if looked.outcome == "skipped"]
    assert (skipped.level, skipped.value, skipped.reason) == ("work", "e5", "the chosen provider does not offer it")


def test_at_last_it_is_the_providers_default() -> None:
    chosen = resolve(work=EmbeddingWish(model="e5"), environment=EmbeddingWish(model="bge"))

    assert (chosen.model, chosen.levels["model"]) == ("small", "provider_default")


def test_dimensions_that_the_model_cannot_give_are_skipped() -> None:
    chosen = resolve(work=EmbeddingWish(model="large", dimensions=256))

    assert (chosen.model, chosen.dimensions) == ("large", 3072)
    assert any(looked.setting == "dimensions" and looked.outcome == "skipped" for looked in chosen.looked)


def test_auto_is_the_platform_unless_the_store_embeds_on_write() -> None:
    automatic = EmbeddingWish(mode="auto")

    assert resolve(work=automatic).mode == "platform"
    assert resolve(work=automatic, store_embeds_on_write=True).mode == "plugin"
    assert resolve(store_embeds_on_write=True).mode == "plugin"


def test_a_store_that_embeds_has_neither_model_nor_dimensions_of_ours() -> None:
    chosen = resolve(store_embeds_on_write=True, work=EmbeddingWish(model="large", dimensions=3072))

    assert (chosen.model, chosen.dimensions) == (None, None)
    assert chosen.levels["model"] == "vector_store"


def test_the_platform_may_be_asked_for_beside_a_store_that_embeds() -> None:
    assert resolve(store_embeds_on_write=True, work=EmbeddingWish(mode="platform")).model == "small"


def test_plugin_mode_is_skipped_where_the_store_does_not_embed() -> None:
    chosen = resolve(work=EmbeddingWish(mode="plugin"), organization=EmbeddingWish(mode="platform"))

    assert (chosen.mode, chosen.levels["mode"]) == ("platform", "organization")


@pytest.mark.parametrize("provider", [None, Models(default_model=None), Models(default_model="gone")])
def test_no_provider_or_no_default_is_no_model(provider: Models | None) -> None:
    chosen = resolve(provider=provider)

    assert (chosen.model, chosen.dimensions, chosen.levels["model"]) == (None, None, "none")


@pytest.mark.parametrize(
    ("wish", "field_name"),
    [
        (EmbeddingWish(model="e5"), "kb_embedding_model"),
        (EmbeddingWish(model="large", dimensions=256), "kb_embedding_dimensions"),
        (EmbeddingWish(dimensions=4096), "kb_embedding_dimensions"),
        (EmbeddingWish(mode="plugin"), "kb_embedding_mode"),
    ],
)
def test_what_is_set_explicitly_and_cannot_be_is_refused_with_its_field(wish: EmbeddingWish, field_name: str) -> None:
    with pytest.raises(Invalid) as caught:
        refuse_unoffered(wish, provider_id="openai", provider=Models(), store_embeds_on_write=False)

    assert [fault.loc for fault in caught.value.faults] == [(field_name,)]


def test_what_can_be_is_not_refused() -> None:
    refuse_unoffered(EmbeddingWish("auto", "small", 512), provider_id="openai", provider=Models())


wishes = st.builds(
    EmbeddingWish,
    mode=st.none() | st.sampled_from(["platform", "plugin", "auto"]),
    model=st.none() | st.sampled_from(["small", "large", "e5"]),
    dimensions=st.none() | st.sampled_from([0, 256, 1536, 3072, 9999]),
)


@given(wishes, wishes, wishes, st.booleans())
def test_whatever_is_wished_the_choice_is_possible_and_explained(
    environment: EmbeddingWish, organization: EmbeddingWish, work: EmbeddingWish, embeds: bool
) -> None:
    chosen = resolve(environment=environment, organization=organization, work=work, store_embeds_on_write=embeds)

    if chosen.mode == "plugin":
        assert embeds
        assert chosen.model is None
    else:
        assert (chosen.model, chosen.dimensions) in [("small", 256), ("small", 1536), ("large", 3072)]
    assert set(json.loads(json.dumps(chosen.explain()))["levels"]) == {"mode", "model", "dimensions"}
    assert all(looked.reason for looked in chosen.looked)
