"""The chain of rungs that chooses a plugin."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Misconfigured
from app.plugins.errors import EmbeddingNotConfigured, PluginNotConfigured, UnusablePin, VectorStoreNotConfigured
from app.plugins.manifest import AiProviderManifest, PluginManifest, VectorStoreManifest
from app.plugins.selection import Candidate, RungLooked, Selection, check_at_start, select


@dataclass(frozen=True)
class Answer:
    ok: bool
    reason: str | None = None


YES, NO = Answer(True), Answer(False, "connection refused")


def store(plugin_id: str, *, default: bool = False, enabled: bool = True) -> Candidate:
    defaults = ("vector-store",) if default else ()
    return Candidate(VectorStoreManifest(id=plugin_id, name=plugin_id, default_for_capabilities=defaults), enabled)


def provider(plugin_id: str, *capabilities: str) -> Candidate:
    return Candidate(AiProviderManifest(id=plugin_id, name=plugin_id, capabilities=capabilities or ("embedding",)))


STORES = [store("memory"), store("chroma"), store("pgvector", default=True), store("qdrant")]
ALL_UP = {candidate.manifest.id: YES for candidate in STORES}


def choose(**given: Any) -> Selection:
    return select("vector-store", **({"candidates": STORES, "availability": ALL_UP} | given))


def outcomes(selection: Selection) -> list[tuple[str, str | None, str]]:
    return [(looked.rung, looked.candidate, looked.outcome) for looked in selection.rungs]


def test_the_operators_pin_wins_over_everything() -> None:
    chosen = choose(operator_pin="qdrant", work_pin="chroma", organization_pin="pgvector", soft_default="chroma")

    assert (chosen.plugin_id, chosen.rung) == ("qdrant", "operator_pin")
    assert outcomes(chosen) == [("operator_pin", "qdrant", "chosen")]


def test_the_works_pin_wins_over_the_organizations() -> None:
    chosen = choose(work_pin="chroma", organization_pin="qdrant", soft_default="qdrant")

    assert (chosen.plugin_id, chosen.rung) == ("chroma", "work_pin")


def test_the_organizations_pin_wins_over_the_environment() -> None:
    chosen = choose(organization_pin="qdrant", soft_default="chroma")

    assert (chosen.plugin_id, chosen.rung) == ("qdrant", "organization_pin")


def test_the_environments_default_wins_over_the_manifests() -> None:
    chosen = choose(soft_default="chroma")

    assert (chosen.plugin_id, chosen.rung) == ("chroma", "environment_default")


def test_without_configuration_the_manifests_default_is_chosen() -> None:
    chosen = choose()

    assert (chosen.plugin_id, chosen.rung) == ("pgvector", "manifest_default")
    assert outcomes(chosen) == [
        ("operator_pin", None, "not_set"),
        ("work_pin", None, "not_set"),
        ("organization_pin", None, "not_set"),
        ("environment_default", None, "not_set"),
        ("manifest_default", "pgvector", "chosen"),
    ]


def test_the_first_available_is_chosen_when_the_default_is_away() -> None:
    chosen = choose(availability={"pgvector": NO, "chroma": NO, "qdrant": YES, "memory": YES})

    assert (chosen.plugin_id, chosen.rung) == ("qdrant", "first_available")
    assert outcomes(chosen)[4:] == [
        ("manifest_default", "pgvector", "unavailable"),
        ("first_available", "memory", "skipped"),
        ("first_available", "chroma", "unavailable"),
        ("first_available", "qdrant", "chosen"),
    ]
    assert chosen.rungs[4].reason == "connection refused"


def test_a_plugin_whose_availability_is_not_known_is_not_the_first_available() -> None:
    assert choose(availability={"pgvector": None, "qdrant": YES}).plugin_id == "qdrant"


def test_nothing_available_is_no_plugin_and_requiring_one_says_so() -> None:
    chosen = choose(availability={})

    assert (chosen.plugin_id, chosen.rung) == (None, "none")
    with pytest.raises(VectorStoreNotConfigured):
        chosen.require()


@pytest.mark.parametrize(
    ("category", "error"), [("ai-provider", EmbeddingNotConfigured), ("object-store", PluginNotConfigured)]
)
def test_each_category_has_its_own_error(category: Any, error: type[Misconfigured]) -> None:
    with pytest.raises(error):
        select(category, candidates=[]).require()


@pytest.mark.parametrize("pin", ["operator_pin", "work_pin", "organization_pin"])
def test_a_pin_is_not_bypassed_because_its_plugin_is_away(pin: str) -> None:
    chosen = choose(availability={"qdrant": NO, "pgvector": YES}, **{pin: "qdrant"})

    assert (chosen.plugin_id, chosen.rung) == ("qdrant", pin)
    assert chosen.is_pinned


@pytest.mark.parametrize("pin", ["operator_pin", "work_pin", "organization_pin"])
@pytest.mark.parametrize(
    ("named", "candidates", "reason"),
    [
        ("nothing", STORES, "no such plugin is registered"),
        ("broken", STORES, "ImportError: libfoo"),
        ("qdrant", [store("qdrant", enabled=False), *STORES[:3]], "it is disabled"),
        ("wordy", [provider("wordy"), *STORES], "category 'ai-provider'"),
    ],
)
def test_a_pin_that_cannot_be_used_is_an_error_with_its_reason(
    pin: str, named: str, candidates: list[Candidate], reason: str
) -> None:
    with pytest.raises(UnusablePin, match=reason) as caught:
        choose(candidates=candidates, broken={"broken": "ImportError: libfoo"}, **{pin: named})

    rungs = caught.value.facts["rungs"]
    assert isinstance(rungs, list)
    assert rungs[-1]["outcome"] == "unusable"


@pytest.mark.parametrize(
    ("named", "reason"), [("nothing", "registered"), ("memory", "pinned"), ("off", "disabled"), ("wordy", "category")]
)
def test_a_soft_default_that_cannot_be_used_is_passed_over_and_explained(named: str, reason: str) -> None:
    candidates = [store("off", enabled=False), provider("wordy"), *STORES]

    chosen = choose(candidates=candidates, soft_default=named)

    assert chosen.plugin_id == "pgvector"
    [looked] = [looked for looked in chosen.rungs if looked.rung == "environment_default"]
    assert (looked.candidate, looked.outcome) == (named, "skipped")
    assert reason in looked.reason


def test_a_disabled_default_is_passed_over_and_explained() -> None:
    chosen = choose(candidates=[store("pgvector", default=True, enabled=False), store("qdrant")])

    assert chosen.plugin_id == "qdrant"
    assert RungLooked("manifest_default", "pgvector", "skipped", "it is disabled") in chosen.rungs


def test_memory_is_selected_only_when_it_is_pinned() -> None:
    alone = [store("memory", default=True)]

    assert choose(candidates=alone, soft_default="memory").plugin_id is None
    assert choose(candidates=alone, work_pin="memory").plugin_id == "memory"


def test_a_provider_that_cannot_embed_is_no_embedding_provider() -> None:
    chosen = select("ai-provider", candidates=[provider("chatty", "chat"), provider("wordy", "chat", "embedding")])

    assert chosen.plugin_id == "wordy"


def test_after_the_first_generation_availability_changes_nothing() -> None:
    chosen = choose(first_generation=False, availability={"pgvector": NO, "qdrant": YES})

    assert chosen.plugin_id == "pgvector"


def test_a_default_that_came_back_does_not_move_a_work_that_began_without_it() -> None:
    first = choose(availability={"pgvector": NO, "chroma": YES})

    later = choose(first_generation=False, passed_over=first.passed_over)
    much_later = choose(first_generation=False, passed_over=later.passed_over)

    assert [first.plugin_id, later.plugin_id, much_later.plugin_id] == ["chroma"] * 3


def test_configuration_moves_a_work_that_availability_placed() -> None:
    first = choose(availability={"pgvector": NO, "chroma": YES})

    later = choose(first_generation=False, passed_over=first.passed_over, soft_default="qdrant")

    assert later.plugin_id == "qdrant"


def test_a_pin_names_even_what_was_passed_over() -> None:
    assert choose(first_generation=False, passed_over=["pgvector"], work_pin="pgvector").plugin_id == "pgvector"


def test_taking_a_pin_away_leads_back_to_the_default() -> None:
    pinned = choose(work_pin="qdrant", availability={"qdrant": YES})

    assert choose(first_generation=False, passed_over=pinned.passed_over).plugin_id == "pgvector"


def test_leading_out_of_a_lexical_generation_asks_availability_anew() -> None:
    lexical = choose(availability={})

    assert choose(first_generation=True, passed_over=lexical.passed_over).plugin_id == "pgvector"


def test_the_explanation_is_json() -> None:
    chosen = choose(soft_default="nothing")

    told = json.loads(json.dumps(chosen.explain()))

    assert (told["plugin_id"], told["rung"]) == ("pgvector", "manifest_default")
    assert told["rungs"][3] == {
        "rung": "environment_default",
        "candidate": "nothing",
        "outcome": "skipped",
        "reason": "no such plugin is registered",
    }


def test_a_start_with_a_pin_to_an_unknown_plugin_is_refused_and_names_the_variable() -> None:
    with pytest.raises(UnusablePin, match="KB_VECTOR_STORE_PROVIDER_ID"):
        check_at_start("vector-store", candidates=STORES, operator_pin="nothing")


def test_a_start_without_any_selectable_vector_store_is_refused() -> None:
    with pytest.raises(Misconfigured, match="no vector store"):
        check_at_start("vector-store", candidates=[store("memory"), store("qdrant", enabled=False)])


def test_a_start_with_memory_pinned_is_not_refused() -> None:
    assert check_at_start("vector-store", candidates=[store("memory")], operator_pin="memory") == []


def test_a_start_without_an_embedding_provider_is_not_refused() -> None:
    assert check_at_start("ai-provider", candidates=[]) == []


def test_a_start_with_an_unknown_soft_default_warns() -> None:
    [warning] = check_at_start("vector-store", candidates=STORES, soft_default="pgvectr")

    assert "KB_VECTOR_STORE_DEFAULT_ID" in warning
    assert "pgvectr" in warning


ids = st.sampled_from(["memory", "chroma", "pgvector", "qdrant", "unknown"])
wishes = st.none() | ids


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(["memory", "chroma", "pgvector", "qdrant"]), unique=True))
    manifests: list[PluginManifest] = [store(name, default=draw(st.booleans())).manifest for name in chosen]
    return {
        "candidates": [Candidate(manifest, draw(st.booleans())) for manifest in manifests],
        "operator_pin": draw(wishes),
        "work_pin": draw(wishes),
        "organization_pin": draw(wishes),
        "soft_default": draw(wishes),
        "availability": draw(st.none() | st.dictionaries(ids, st.sampled_from([YES, NO, None]))),
        "first_generation": draw(st.booleans()),
        "passed_over": draw(st.lists(ids, max_size=2)),
    }


def selected(situation: dict[str, Any]) -> Selection | None:
    try:
        return select("vector-store", **situation)
    except UnusablePin:
        return None


@given(situations())
def test_the_first_pin_decides_or_fails_and_nothing_else(situation: dict[str, Any]) -> None:
    pins = [situation[name] for name in ("operator_pin", "work_pin", "organization_pin") if situation[name]]
    usable = {candidate.manifest.id for candidate in situation["candidates"] if candidate.enabled}

    chosen = selected(situation)

    if pins:
        assert (chosen.plugin_id if chosen else None) == (pins[0] if pins[0] in usable else None)
    else:
        assert chosen is not None
        assert chosen.plugin_id in {*usable, None}
        assert chosen.plugin_id != "memory"


@given(situations(), st.dictionaries(ids, st.sampled_from([YES, NO])))
def test_a_later_generation_never_depends_on_availability(situation: dict[str, Any], now: dict[str, Answer]) -> None:
    later = situation | {"first_generation": False}

    assert selected(later) == selected(later | {"availability": now})


@given(situations())
def test_a_selection_repeated_without_change_of_configuration_stays(situation: dict[str, Any]) -> None:
    first = selected(situation)
    if first is None or first.plugin_id is None:
        return  # an error and a lexical generation are asked anew

    again = selected(situation | {"first_generation": False, "passed_over": first.passed_over})

    assert again is not None
    assert again.plugin_id == first.plugin_id


@given(situations())
def test_the_record_ends_with_what_was_chosen_and_looks_at_rungs_in_order(situation: dict[str, Any]) -> None:
    order = [
        "operator_pin",
        "work_pin",
        "organization_pin",
        "environment_default",
        "manifest_default",
        "first_available",
        "none",
    ]
    chosen = selected(situation)
    if chosen is None:
        return

    last = chosen.rungs[-1]
    assert (last.rung, last.candidate, last.outcome) == (chosen.rung, chosen.plugin_id, "chosen")
    places = [order.index(looked.rung) for looked in chosen.rungs]
    assert places == sorted(places)
    assert all(looked.reason for looked in chosen.rungs)
    assert json.loads(json.dumps(chosen.explain()))["plugin_id"] == chosen.plugin_id
