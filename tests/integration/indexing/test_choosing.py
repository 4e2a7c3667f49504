"""What index is wanted, for a first generation and behind one: pins, availability, instances."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text

from app.chunking.contract import ChunkSettings
from app.indexing.choices import EnvironmentChoice
from app.indexing.choosing import Chooser, NoStoreAnswers, SettingsMissing
from app.indexing.generations import Generations
from app.indexing.models import IndexGeneration
from app.plugins.embedding_choice import EmbeddingWish
from app.plugins.errors import UnusablePin
from app.plugins.instances import Instances
from app.plugins.pins import PluginInstance, WorkPlugin
from app.plugins.registry import Registry
from app.plugins.sealing import Sealer
from tests.integration.indexing.choosing_doubles import AWAY
from tests.integration.indexing.conftest import Desk

DOUBLES = "tests.integration.indexing.choosing_doubles"
SEALER = Sealer([Sealer.generate_key()])
REGISTRY = Registry(
    [
        ("first", f"{DOUBLES}:First"),
        ("second", f"{DOUBLES}:Second"),
        ("memory", "app.vector_stores.memory:MemoryStore"),
        ("provider", f"{DOUBLES}:Provider"),
    ]
)


@pytest.fixture(autouse=True)
def _all_answer() -> Iterator[None]:
    AWAY.clear()
    yield
    AWAY.clear()


class Bench:
    """A Work without an index, under an environment that a test changes."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.configured: dict[str, dict[str, Any]] = {"first": {}, "second": {}, "memory": {}, "provider": {}}
        self.environment = EnvironmentChoice()

    @property
    def work_id(self) -> Any:
        return self.desk.work_id

    def instances(self) -> Instances:
        return self.chooser()._instances

    def chooser(self) -> Chooser:
        settings = {name: REGISTRY.parse_settings(name, values) for name, values in self.configured.items()}
        environment = replace(self.environment, settings=settings)

        def build(plugin: Any, values: Any) -> Any:
            return plugin.cls(values)

        instances = Instances(self.desk.database, REGISTRY, SEALER, settings, build)
        return Chooser(self.desk.database, REGISTRY, SEALER, instances, environment)

    async def active(self) -> IndexGeneration:
        """The Work's index, made now if there is none."""
        return await Generations(self.desk.database, self.chooser(), ChunkSettings()).ensure_active(self.work_id)

    async def pin(self, plugin_id: str, category: str, **settings: Any) -> None:
        sealed = SEALER.seal(REGISTRY.parse_settings(plugin_id, settings)) if settings else None
        async with self.desk.session() as session:
            await session.execute(text("delete from work_plugins where category = :c"), {"c": category})
            session.add(
                WorkPlugin(
                    work_id=self.work_id, plugin_id=plugin_id, category=category, enabled=True, pinned=True,
                    sealed_settings=sealed,
                )
            )  # fmt: skip

    async def say(self, **settings: Any) -> None:
        async with self.desk.session() as session:
            await session.execute(
                text("update works set settings = jsonb_build_object('kb_embedding_model', cast(:m as text))"),
                {"m": settings["kb_embedding_model"]},
            )


@pytest.fixture
async def bench(desk: Desk) -> Bench:
    async with desk.session() as session:
        await session.execute(text("delete from index_generations"))
    return Bench(desk)


async def test_a_store_that_is_away_is_passed_over_for_a_first_index_and_stays_so_when_it_is_back(bench: Bench) -> None:
    AWAY.add("first")
    active = await bench.active()
    AWAY.clear()
    wanted = await bench.chooser().wanted(bench.work_id, await bench.active())

    assert active.vector_store_id == "second"
    assert active.passed_over == ["first"]
    assert wanted.is_that_of(active)
    assert wanted.passed_over == ("first",)


async def test_behind_an_index_availability_changes_nothing(bench: Bench) -> None:
    active = await bench.active()
    AWAY.update({"first", "second"})
    wanted = await bench.chooser().wanted(bench.work_id, active)

    assert active.vector_store_id == "first"
    assert wanted.is_that_of(active)


async def test_a_pin_is_never_bypassed(bench: Bench) -> None:
    AWAY.add("second")
    await bench.pin("second", "vector-store")

    assert (await bench.chooser().wanted(bench.work_id, None)).vector_store_id == "second"
    bench.environment = EnvironmentChoice(disabled=frozenset({"second"}))
    with pytest.raises(UnusablePin, match="disabled"):
        await bench.chooser().wanted(bench.work_id, None)
    explained = await bench.chooser().explain(bench.work_id)
    assert explained.problem is not None
    assert explained.store.rungs[-1].outcome == "unusable"


async def test_the_operators_pin_stands_above_all(bench: Bench) -> None:
    await bench.pin("second", "vector-store")
    bench.environment = EnvironmentChoice(store_pin="first")

    assert (await bench.chooser().wanted(bench.work_id, None)).vector_store_id == "first"


async def test_availability_leads_out_of_a_lexical_index(bench: Bench) -> None:
    async with bench.desk.session() as session:
        session.add(IndexGeneration(work_id=bench.work_id, number=1, state="active"))
    lexical = await bench.active()
    AWAY.add("first")
    wanted = await bench.chooser().wanted(bench.work_id, lexical)

    assert lexical.vector_store_id is None
    assert wanted.vector_store_id == "second"
    assert wanted.passed_over == ("first",)


async def test_a_moment_without_any_store_decides_nothing(bench: Bench) -> None:
    AWAY.update({"first", "second"})

    with pytest.raises(NoStoreAnswers):
        await bench.chooser().wanted(bench.work_id, None)


async def test_a_default_that_the_environment_only_later_configures_is_wanted_then(bench: Bench) -> None:
    """That is configuration, not availability."""
    del bench.configured["second"]
    bench.environment = EnvironmentChoice(store_default="second")
    active = await bench.active()
    before = await bench.chooser().wanted(bench.work_id, active)
    bench.configured["second"] = {}
    after = await bench.chooser().wanted(bench.work_id, active)

    assert (active.vector_store_id, active.passed_over) == ("first", [])
    assert before.is_that_of(active)
    assert after.vector_store_id == "second"


async def test_a_changed_endpoint_is_another_instance_a_rotated_secret_or_timeout_is_not(bench: Bench) -> None:
    await bench.pin("first", "vector-store", url="https://one.example", api_key="k1")
    active = await bench.active()
    await bench.pin("first", "vector-store", url="https://one.example", api_key="k2", timeout_s=9)
    rotated = await bench.chooser().wanted(bench.work_id, active)
    await bench.pin("first", "vector-store", url="https://two.example", api_key="k2")
    moved = await bench.chooser().wanted(bench.work_id, active)

    assert rotated.is_that_of(active)
    assert not moved.is_that_of(active)
    assert moved.vector_store_id == active.vector_store_id


async def test_other_facts_of_a_model_make_another_index_and_the_old_one_keeps_its_own_with_todays_secret(
    bench: Bench,
) -> None:
    bench.configured["provider"] = {"model": "m1", "api_key": "k1", "prefix": "a: "}
    active = await bench.active()
    bench.configured["provider"] = {"model": "m2", "api_key": "k2", "timeout_s": 9}
    wanted = await bench.chooser().wanted(bench.work_id, active)
    assert active.provider_instance_id is not None
    opened = await bench.instances().open(bench.work_id, active.provider_instance_id)

    assert wanted.embedding_model == "m2"
    assert not wanted.is_that_of(active)
    assert opened.find_model("m1").document_prefix == "a: "
    assert opened.settings.api_key.get_secret_value() == "k2"
    assert opened.settings.timeout_s == 9


async def test_facts_of_another_model_than_the_one_in_use_change_nothing(bench: Bench) -> None:
    await bench.say(kb_embedding_model="common")
    bench.configured["provider"] = {"model": "m1"}
    active = await bench.active()
    bench.configured["provider"] = {"model": "m2"}
    wanted = await bench.chooser().wanted(bench.work_id, active)

    assert active.embedding_model == "common"
    assert wanted.is_that_of(active)


async def test_a_model_of_the_environment_is_wanted_when_it_changes(bench: Bench) -> None:
    bench.environment = EnvironmentChoice(wish=EmbeddingWish(model="common"))
    active = await bench.active()
    bench.environment = EnvironmentChoice(wish=EmbeddingWish(model="m1"))
    wanted = await bench.chooser().wanted(bench.work_id, active)

    assert (active.embedding_model, wanted.embedding_model) == ("common", "m1")
    assert wanted.store_instance_id == active.store_instance_id


async def test_wanting_the_same_again_records_no_further_instance(bench: Bench) -> None:
    active = await bench.active()
    for _ in range(3):
        await bench.chooser().wanted(bench.work_id, active)
    async with bench.desk.session() as session:
        found = (await session.scalars(select(PluginInstance.plugin_id))).all()

    assert sorted(found) == ["first", "provider"]


async def test_an_unusable_pin_of_a_provider_is_explained_beside_the_store(bench: Bench) -> None:
    await bench.pin("provider", "ai-provider")
    bench.environment = EnvironmentChoice(disabled=frozenset({"provider"}))
    explained = await bench.chooser().explain(bench.work_id)

    assert explained.store.plugin_id == "first"
    assert explained.provider is not None
    assert explained.provider.rungs[-1].outcome == "unusable"
    assert explained.problem is not None


async def test_a_pin_to_an_endpoint_that_nobody_named_is_no_choice(bench: Bench) -> None:
    """The default of such a setting may lie in the operator's network."""
    del bench.configured["second"]
    await bench.pin("second", "vector-store")

    with pytest.raises(SettingsMissing, match="endpoint"):
        await bench.chooser().wanted(bench.work_id, None)
