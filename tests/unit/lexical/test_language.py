"""Which language a text is in."""

from pathlib import Path

import pytest

from app.documents.lexical.analysis import detect_language

SENTENCES = {
    "en": "The committee shall meet at least once a year and report its findings to the members.",
    "de": "Die Kündigung muss schriftlich erfolgen und wird erst mit dem Zugang bei der Geschäftsstelle wirksam.",
    "fr": "Le conseil se réunit au moins une fois par an et rend compte de ses travaux aux membres.",
    "es": "El comité se reunirá al menos una vez al año y presentará sus conclusiones a los miembros.",
    "it": "Il comitato si riunisce almeno una volta all'anno e riferisce le sue conclusioni ai membri.",
    "nl": "De commissie komt ten minste één keer per jaar bijeen en brengt verslag uit aan de leden.",
    "pt": "O comitê se reúne pelo menos uma vez por ano e apresenta as suas conclusões aos membros.",
    "ru": "Комитет собирается не реже одного раза в год и отчитывается перед членами о своей работе.",
    "sv": "Kommittén sammanträder minst en gång om året och rapporterar sina slutsatser till medlemmarna.",
    "da": "Udvalget mødes mindst en gang om året, og det rapporterer, hvad der angår økonomien efter mødet.",
    "no": "Utvalget møtes minst en gang i året og rapporterer til medlemmene om hva som skjer etter møtet.",
    "fi": "Valiokunta kokoontuu kerran vuodessa, ja se raportoi niistä jäsenille, jotka ovat paikalla.",
    "el": "Η επιτροπή συνεδριάζει τουλάχιστον μία φορά το χρόνο και υποβάλλει τα πορίσματά της στα μέλη.",
    "ar": "تجتمع اللجنة مرة واحدة على الأقل في السنة وتقدم تقريرها إلى الأعضاء عن هذا العمل",
    "hi": "समिति की बैठक वर्ष में कम से कम एक बार होती है और वह सदस्यों को अपनी रिपोर्ट देती है।",
    "he": "הוועדה מתכנסת לפחות פעם בשנה ומדווחת לחברים.",
    "th": "คณะกรรมการประชุมอย่างน้อยปีละครั้ง",
    "ko": "위원회는 적어도 일 년에 한 번 모인다.",
    "ja": "委員会は少なくとも年に一度開かれる。",
    "zh": "委员会每年至少召开一次会议。",
}
UNKNOWN = {
    "nothing": "",
    "numbers": "12345 !!",
    "Polish": "Komitet zbiera się co najmniej raz w roku i składa sprawozdanie swoim członkom.",
    "Turkish": "Komite yılda en az bir kez toplanır ve bulgularını üyelere rapor eder.",
    "Ukrainian": "Комітет збирається не рідше одного разу на рік та звітує перед членами про свою роботу.",
    "Persian": "این کمیته حداقل سالی یک بار تشکیل جلسه می‌دهد و گزارش خود را به اعضا ارائه می‌کند و از آن",
    "names": "Los Angeles Lakers, Los Angeles Clippers, Los Angeles Rams, San Diego Chargers",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_tells_its_language(language: str) -> None:
    assert detect_language(SENTENCES[language]) == language


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_other_texts_are_of_no_known_language(text: str) -> None:
    assert detect_language(text) is None


def test_a_long_text_gets_the_language_of_most_of_it() -> None:
    assert detect_language(SENTENCES["de"] * 200 + SENTENCES["en"] * 20) == "de"


@pytest.mark.parametrize("language", ["de", "en", "ja", "zh"])
def test_nearly_all_technical_pages_tell_their_language(language: str) -> None:
    folder = Path(__file__).parents[4] / "shared/data/docs/fastapi/docs" / language
    if not folder.is_dir():
        pytest.skip("the shared documentation pages are not here")

    found = [detect_language(page.read_text("utf-8")) for page in folder.rglob("*.md")]

    assert found.count(language) >= 0.95 * len(found)
