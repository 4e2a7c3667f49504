"""What a document is found by."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.lexical.analysis import ANALYZER_FINGERPRINT, analyze_document

from .lexical_index import LexicalIndex

SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyzäöüßéèçñøåæœłış",
    "cyrillic": "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґ",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويأإآةىئؤ",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשתםןץףך",
    "devanagari": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह" + "ािीुूेैोौ्ं",
    "tamil": "அஆஇஈஉஊஎஏஐஒஓகஙசஞடணதநபமயரலவழளறன" + "ாிீுூெேைொோ்",
    "armenian": "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ",
    "georgian": "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "han": "的一是在不了有和人这中大为上个国我以要他日水火木金土",
    "kana": "あいうえおかがきぎくぐけげこごアイウエオカガキギー",
    "hangul": "가나다라마바사아자차카타파하한글검색어",
    "thai": "กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวสหอฮะาำิีึืุูเแโใไ่้",
    "lao": "ກຂຄງຈສຊຍດຕຖທນບປຜຝພຟມຢຣລວຫອຮະາຳິີຶື",
    "khmer": "កខគឃងចឆជឈញដឋឌឍណតថទធនបផពភមយរលវសហឡអាិីុូ្",
    "burmese": "ကခဂဃငစဆဇဈညဋဌဍဎဏတထဒဓနပဖဗဘမယရလဝသဟဠအာိီုူေဲ့း္်",
}
LANGUAGES = [None, "en", "de", "fr", "es", "it", "nl", "pt", "ru", "sv", "da", "no", "fi", "el", "ar", "hi", "ta", "hy"]

word = st.sampled_from(sorted(SCRIPTS)).flatmap(lambda script: st.text(SCRIPTS[script], min_size=1, max_size=12))
cased_word = st.one_of(word, word.map(str.upper), word.map(str.title))


@given(words=st.lists(cased_word, min_size=1, max_size=12), data=st.data())
@settings(max_examples=400, deadline=None)
def test_a_word_of_the_text_is_found_by_searching_it_alone(words: list[str], data: st.DataObject) -> None:
    language = data.draw(st.sampled_from(LANGUAGES))
    query_languages = data.draw(st.sets(st.sampled_from(LANGUAGES)))
    index = LexicalIndex([", ".join(words)], language=language)

    for searched in words:
        assert index.search(searched, languages=query_languages), (searched, language)


@pytest.mark.parametrize("language", ["en", "de", "fr", "ru"])
@pytest.mark.parametrize("name", ["Will", "IT", "die", "Не", "Was", "où"])
def test_a_stop_word_is_found_by_itself(name: str, language: str) -> None:
    index = LexicalIndex([f"{name} 42"], ["nothing of the kind"], language=language)

    assert index.documents(name) == [1]


@pytest.mark.parametrize("surrounding", ["See {}.", "({})", '"{}",', "`{}`;", "über {}!", "请看{}。"])
@pytest.mark.parametrize(
    "identifier",
    [
        "ERR-4711", "3.11.7", "/etc/x/y.conf", "jane.doe@example.com", "snake_case", "foo.bar()", "C++", "C#", ".NET",
        "--dry-run", "__init__", "std::vector", "SKU/AB-12.3", "covid-19", "straße_1",
    ],
)  # fmt: skip
def test_an_identifier_is_one_term_beside_its_words(identifier: str, surrounding: str) -> None:
    found = set(analyze_document([surrounding.format(identifier)], "en").terms)

    whole = {term for term in analyze_document([identifier], None).terms if term.startswith("@")}
    assert whole
    assert whole <= found


def test_an_exact_identifier_ranks_before_its_parts_however_often_those_are_said() -> None:
    parts = ["ERR 4711 err 4711 err 4711 err err err"]
    exact = ["The device stopped with ERR-4711 after " + "a long list of quite different remarks " * 20]
    other = ["unrelated words about gardens"]
    index = LexicalIndex(parts, exact, other, other, other, language="en")

    assert index.documents("err-4711") == [2, 1]


def test_names_inside_a_path_are_found() -> None:
    index = LexicalIndex(["edit /etc/app/server.conf then restart"], ["server and conf"], language="en")

    assert index.documents("server.conf")[0] == 1


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("en", "They were running quickly", "runs"),
        ("de", "Die Universitäten schließen", "universitat"),
        ("fr", "les étudiants", "etudiante"),
        ("ru", "большие города", "город"),
        (None, "Ｆｕｌｌｗｉｄｔｈ Café", "fullwidth cafe"),
        (None, "co\u00adopera\u00adtion", "cooperation"),
    ],
)
def test_case_accents_width_and_inflection_do_not_matter(language: str | None, text: str, query: str) -> None:
    index = LexicalIndex([text], language=language)

    assert index.documents(query) == [1]


def test_scripts_without_spaces_are_found_by_any_part_of_a_run() -> None:
    index = LexicalIndex(["我们在北京大学学习"], ["ภาษาไทยไม่มีช่องว่าง"], ["検索エンジンの仕組み"])

    assert index.documents("京大") == [1]
    assert index.documents("水") == []
    assert index.documents("学") == [1]
    assert index.documents("ไทย")[0] == 2
    assert index.documents("エンジン") == [3]


def test_marks_of_indic_scripts_are_part_of_words() -> None:
    assert analyze_document(["हिन्दी"], None).terms == ("हिन्दी",)


def test_lengths_count_words_without_stop_words_and_bigrams() -> None:
    terms = analyze_document(["the wing of a bird", "", "大学生", "the of"], "en")

    assert terms.lengths.tolist() == [2, 0, 2, 0]
    assert terms.total_length == 4


def test_frequencies_of_inflections_add_up_in_the_stem() -> None:
    postings = dict(analyze_document(["runs running run", "other", "run"], "en").postings())

    assert postings["run"] == [(0, 3), (2, 1)]
    assert postings["=running"] == [(0, 1)]


@given(chunks=st.lists(st.text(max_size=60), max_size=8), language=st.sampled_from(LANGUAGES))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_the_same_storable_terms_each_time(chunks: list[str], language: str | None) -> None:
    first, second = analyze_document(chunks, language), analyze_document(chunks, language)

    assert list(first.postings()) == list(second.postings())
    assert list(first.terms) == sorted(set(first.terms))
    assert len(first.lengths) == len(chunks)
    assert all(0 < len(term.encode()) <= 1024 and "\0" not in term for term in first.terms)


def test_lone_surrogates_and_nul_separate_words() -> None:
    assert analyze_document(["left\ud800right\0end"], None).terms == ("end", "left", "right")


def test_a_word_of_any_length_gives_a_short_term_of_its_own() -> None:
    one, other = ("x" * 10_000 + end for end in "ab")
    index = LexicalIndex([one], [other], language="en")

    assert max(len(row[0]) for row in index.rows) <= 65
    assert index.documents(one) == [1]


def test_blocks_of_a_large_document_join_without_a_seam() -> None:
    chunks = [f"alpha {'beta' if i % 1000 == 0 else 'gamma'}" for i in range(5000)]

    postings = dict(analyze_document(chunks, None).postings())

    assert postings["alpha"] == [(i, 1) for i in range(5000)]
    assert postings["beta"] == [(i, 1) for i in range(0, 5000, 1000)]


def test_a_document_without_chunks_has_no_terms() -> None:
    terms = analyze_document([], "en")

    assert terms.terms == ()
    assert terms.total_length == 0


def test_the_fingerprint_is_short_and_opens_with_the_version() -> None:
    assert ANALYZER_FINGERPRINT.startswith("1-")
    assert len(ANALYZER_FINGERPRINT) <= 64
