"""What a query asks for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.lexical.analysis import analyze_query, phrase_matches

from .lexical_index import LexicalIndex


@pytest.mark.parametrize("text", ["", "   ", "!?&|<->:*()", '""', "\0", "🎉", "\u0301"])
def test_a_query_without_words_matches_nothing(text: str) -> None:
    index = LexicalIndex(["some text"], language="en")

    assert analyze_query(text, {"en"}).groups == ()
    assert index.search(text) == []


@pytest.mark.parametrize(
    "text", ["wing & (", "wing:*", "'wing", 'wing"', "!wing", "wing \\", "-wing", "wing\0", "<wing>"]
)
def test_signs_are_data(text: str) -> None:
    index = LexicalIndex(["a wing"], ["a tail"], language="en")

    assert index.documents(text) == [1]


@given(text=st.text(max_size=200), languages=st.sets(st.sampled_from([None, "en", "de", "zh", "ru"])))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_query(text: str, languages: set[str | None]) -> None:
    query = analyze_query(text, languages)

    assert query == analyze_query(text, languages)
    assert all(group.terms and group.weight > 0 for group in query.groups)


def test_stop_words_do_not_disturb_the_ranking() -> None:
    index = LexicalIndex(["the the what is of"], ["wings are considered here"], ["other things"], language="en")

    assert index.documents("what is the wing of it") == [2]


def test_a_query_of_stop_words_alone_finds_them() -> None:
    index = LexicalIndex(["The Who played"], ["nobody played"], language="en")

    assert index.documents("the who") == [1]


def test_the_variants_of_a_word_are_one_group() -> None:
    query = analyze_query("Wanderungen", {"de", "en", None})

    assert len(query.groups) == 1
    assert {"wander", "wanderungen", "=wanderungen"} <= set(query.groups[0].terms)


def test_a_query_finds_documents_of_every_language_by_their_own_stems() -> None:
    german = ["Die Organisationen und ihre Arbeit sind hier für alle beschrieben, mit dem Ziel der Klarheit."]
    english = ["The organisations and their work are described here for all of the readers."]
    index = LexicalIndex(german, english)

    assert index.languages == {"de", "en"}
    assert set(index.documents("Organisation")) == {1, 2}


def test_a_word_that_another_language_stops_still_counts() -> None:
    german = ["Das war nicht so, und es war auch nicht gut, was er mit ihr dort getan hat."]
    english = ["The war between the states was long and it was hard for all of them."]
    index = LexicalIndex(german, english)

    assert index.documents("war history") == [2]


def test_a_word_said_twice_weighs_twice() -> None:
    once, twice = analyze_query("wing", {"en"}), analyze_query("wing wing", {"en"})

    assert [group.terms for group in once.groups] == [group.terms for group in twice.groups]
    assert twice.groups[0].weight == 2 * once.groups[0].weight


def test_a_very_long_query_is_bounded() -> None:
    assert len(analyze_query(" ".join(f"word{i}" for i in range(5000)), {"en"}).groups) == 256


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ('"exact words" more', ("exact words",)),
        (
            "find “curly ones” and „deutsche“ and «français» and 「日本語」",
            ("curly ones", "deutsche", "français", "日本語"),
        ),
        ('an unbalanced "quote', ()),
        ('5" pipe and 6" hose', ()),
        ('"" and " ! "', ()),
        ('"same" "same"', ("same",)),
    ],
)
def test_quoted_parts_are_phrases(text: str, phrases: tuple[str, ...]) -> None:
    assert analyze_query(text, {"en"}).phrases == phrases


@pytest.mark.parametrize(
    ("text", "phrase", "matches"),
    [
        ("It is the Exact,\n words.", "exact words", True),
        ("exact other words", "exact words", False),
        ("inexact words", "exact words", False),
        ("to be or not to be", "be or not", True),
        ("Café au lait", "cafe au lait", True),
        ("我们在北京大学", "北京大", True),
        ("我们在北京大学", "京北", False),
        ("call foo.bar(x)", "foo bar", True),
        ("anything", "!", False),
        ("runs", "run", False),
    ],
)
def test_a_phrase_is_its_words_side_by_side(text: str, phrase: str, matches: bool) -> None:
    assert phrase_matches(text, phrase) is matches
