"""What requests and answers look like; the OpenAPI description is made from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import CLS, SEP
from glassformer.inputs.images import ServedImages
from glassformer.inputs.served import Served
from glassformer.inputs.texts import ServedTexts
from glassformer.serve.problems import Problem

One = TypeVar("One")
ONE = "GET /openapi.json says what fits; send one of them"
Text = Annotated[str, Field(min_length=1)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]
# The first error is enough; a list of all of them is not small.
Many = Annotated[list[One], Field(min_length=1, fail_fast=True)] | None
Picture = Annotated[str, Field(min_length=1, description="The bytes of an image file, in base64")]
# As long as a folder can be called: models bear the names of theirs.
Name = Annotated[str, Field(max_length=255, description="One of /v1/models; without it the first that fits")]
Method = Literal[
    "rollout",
    "attention",
    "occlusion",
    "integrated_gradients",
    "gradient_x_input",
    "attention_gradient",
    "gim",
    "decomposition",
    "shapley",
    "weights",
]


@dataclass(frozen=True)
class Asked:
    """What a request asks a model: inputs, and the field that they stood in."""

    inputs: Sequence[Any]
    where: str
    reads: type[Served] = ServedTexts  # the kind of the inputs
    pairs: bool = False
    places: Mapping[str, str] = field(default_factory=dict)  # of inputs, where the request has other names


def _example(body: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [body]})


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Request(Strict):
    """It takes ``text`` for ``texts``, ``image`` for ``images``, and the other way round."""

    def asked(self) -> Asked:
        """Texts; raises Problem for fields that do not fit each other."""
        texts = self.given("text")
        if texts is None:
            raise Problem(422, "texts are missing", where="texts", fix='Send {"texts": ["..."]}')
        return Asked(texts, "texts")

    def given(self, one: str) -> list[str] | None:
        """What stands under ``one`` or its plural, as a list; None: neither does.

        Raises:
            Problem: both do.
        """
        single, several = (getattr(self, name, None) for name in (one, f"{one}s"))
        if single is not None and several is not None:
            raise Problem(422, f"both {one} and {one}s", where="body", fix="Send one of them")
        return several if single is None else [single]


class PredictRequest(Request):
    """Texts, pairs of texts or images, one kind of them."""

    model_config = _example({"texts": ["A compelling story, mediocre acting.", "Dull."]})
    READS: ClassVar[Sequence[type[Served]]] = (ServedTexts, ServedImages)
    texts: Many[Text] = None
    images: Many[Picture] = None
    pairs: list[Pair] | None = Field(
        None, min_length=1, fail_fast=True, description="Two texts each, for a model of pairs"
    )
    text: Text | None = Field(None, description="As texts with one text")
    image: Picture | None = Field(None, description="As images with one image")
    top: int | None = Field(
        None, ge=1, le=10_000, description="Give the probabilities of the likeliest classes only, so many"
    )
    model: Name | None = None

    def asked(self) -> Asked:
        asked = [
            Asked(inputs, f"{kind.field}s", kind)
            for kind in self.READS
            if (inputs := self.given(kind.field)) is not None
        ]
        if self.pairs is not None:
            asked.append(Asked([TextPair(*pair) for pair in self.pairs], "pairs", pairs=True))
        if len(asked) != 1:
            raise Problem(422, "texts, pairs or images, one of them", where="body", fix=ONE)
        return asked[0]


class Prediction(Strict):
    label: str
    probability: float = Field(
        description="Of that label, after the model's temperature; of several, of the least sure one"
    )
    probabilities: dict[str, float]
    truncated: bool = Field(description="Whether the text was longer than the model reads")
    labels: list[str] | None = Field(
        None, description="Of a model that gives several labels: all of them; absent with others"
    )
    abstains: bool | None = Field(
        None, description="true: the label is the likeliest, but below the model's abstain_below; else absent"
    )


class PredictedNumber(Strict):
    number: float
    interval: list[float] | None = Field(
        None, description="Holds 90 % of true numbers; absent where too few examples were held out to know"
    )
    truncated: bool = Field(description="Whether the text was longer than the model reads")


class PredictResponse(Strict):
    model: str
    predictions: list[Prediction] = Field(description="Empty with regressors")
    numbers: list[PredictedNumber] | None = Field(None, description="Of a regressor; absent with others")


class ExplainRequest(Request):
    """One text, one pair or one image, and how to look at it."""

    model_config = _example({"text": "A compelling story, mediocre acting.", "method": "rollout"})
    READS: ClassVar[Sequence[type[Served]]] = (ServedTexts, ServedImages)
    text: Text | None = None
    text_pair: Text | None = Field(None, description="The second text, for a model of pairs")
    image: Picture | None = None
    texts: list[Text] | None = Field(None, min_length=1, max_length=1, description="As text: one text")
    images: list[Picture] | None = Field(None, min_length=1, max_length=1, description="As image: one image")
    model: Name | None = None
    method: Method = "rollout"
    target: str | None = Field(
        None, max_length=200, description="The label to explain; not with rollout, attention"
    )
    word: int | str | None = Field(
        None, description="Of a tagger: the word of the text to explain, or its number from 0"
    )
    layer: int | None = Field(None, ge=-1000, le=1000, description="With attention; -1 is the last")
    head: int | None = Field(None, ge=-1000, le=1000, description="With attention; none: the mean of all")

    def asked(self) -> Asked:
        asked = [
            Asked(inputs, kind.field, kind)
            for kind in self.READS
            if (inputs := self.given(kind.field)) is not None
        ]
        if len(asked) != 1:
            raise Problem(422, "text or image, one of them", where="body", fix=ONE)
        if self.text_pair is None:
            return asked[0]
        if asked[0].reads is not ServedTexts:
            raise Problem(422, "text_pair without text", where="body", fix="Send both texts of the pair")
        return Asked([(asked[0].inputs[0], self.text_pair)], "text", pairs=True)


def reading(request: type[Request], kinds: Sequence[type[Served]]) -> type[Request]:
    """A request that also takes inputs of these kinds, each in a separate field."""
    known = getattr(request, "READS", None)
    more = [kind for kind in dict.fromkeys(kinds) if known and kind.field not in request.model_fields]
    if known is None or not more:
        return request
    fields: dict[str, Any] = {}
    for kind in more:
        one: Any = Annotated[kind.element | None, Field(description=kind.element_is)]
        fields |= {f"{kind.field}s": (Many[kind.element], None), kind.field: (one, None)}
    made = create_model(request.__name__, __base__=request, __doc__=request.__doc__, **fields)
    made.READS = (*known, *more)  # type: ignore[attr-defined]  # those of labels have it
    return made


class Piece(Strict):
    """A word and its score, or what stands between two words (without a score)."""

    text: str
    score: float | None


class ExplainResponse(Strict):
    model: str
    label: str
    probability: float
    method: str
    target: str | None
    pieces: list[Piece] = Field(description="The text in order; empty for images")
    second: int | None = Field(
        None, description="Of a pair: the number of the piece that its second text begins with"
    )
    special: list[Piece] = Field(description=f"{CLS}, {SEP} and the like, which stand nowhere in the text")
    scores: list[list[float]] = Field(description="Rows and columns of patches; empty for texts")
    image: str | None = Field(description="data: URL of the image as the model saw it")
    error: float | None = Field(description="Integrated gradients: relative error of the sum")
    settings: dict[str, Any]
    notes: list[str] = Field(
        description="What a reader must know: how the method's scores are read; what of a text was left out"
    )


class EmbedRequest(Request):
    """Texts to be made vectors of."""

    model_config = _example({"texts": ["A dog runs.", "Rain falls."]})
    texts: Many[Text] = None
    text: Text | None = Field(None, description="As texts with one text")
    model: Name | None = None


class EmbedResponse(Strict):
    model: str
    vectors: list[list[float]] = Field(description="One a text, of length 1")
    truncated: list[bool] = Field(description="Whether a text was longer than the model reads")


class SimilarRequest(Request):
    """Pairs of texts to be compared."""

    model_config = _example({"pairs": [["A dog runs.", "The dog ran."]]})
    pairs: list[Annotated[list[Text], Field(min_length=2, max_length=2)]] = Field(
        min_length=1, fail_fast=True
    )
    model: Name | None = None
    explain: bool = Field(False, description="Of one pair: what each pair of tokens adds to the cosine")

    def asked(self) -> Asked:
        if self.explain and len(self.pairs) > 1:
            raise Problem(422, "one pair is explained at a time", where="explain", fix="Send one pair")
        texts = [text for pair in self.pairs for text in pair]
        places = {f"pairs[{i}]": f"pairs[{i // 2}][{i % 2}]" for i in range(len(texts))}
        return Asked(texts, "pairs", places=places)


class PairExplanation(Strict):
    """The table sums up to the cosine."""

    cosine: float
    tokens: list[list[str]] = Field(description="Of the first text, and of the second")
    table: list[list[float]] = Field(description="A row for each token of the first")
    notes: list[str]


class SimilarResponse(Strict):
    model: str
    cosines: list[float]
    truncated: list[bool] = Field(description="Whether a text of the pair was longer than the model reads")
    explanation: PairExplanation | None


class SearchRequest(Request):
    """Texts whose nearest in meaning are looked for in the list that the server was started with."""

    model_config = _example({"texts": ["Can I return it?"], "count": 3})
    texts: Many[Text] = None
    text: Text | None = Field(None, description="As texts with one text")
    count: int = Field(5, ge=1, le=100, description="How many for each text")
    least: float | None = Field(None, ge=-1, le=1, description="Nothing less alike than this is an answer")
    model: Name | None = None


class FoundText(Strict):
    row: int = Field(description="In the file that the list came from, else its place from 1 on")
    cosine: float
    text: str
    columns: dict[str, Any] = Field(description="What else is in that row")


class SearchAnswer(Strict):
    found: list[FoundText] = Field(description="The nearest first; empty: nothing fits")
    nearest: float = Field(description="The largest cosine, of an answer or not")


class SearchResponse(Strict):
    model: str
    answers: list[SearchAnswer] = Field(description="One a text")
    truncated: list[bool] = Field(description="Whether a text was longer than the model reads")


class TagRequest(Request):
    """Texts, split as the training words are, or words: one sentence or several, in one of four forms."""

    model_config = _example({"text": "Ann left Rome"})
    text: Text | None = None
    words: list[Text] | None = Field(None, min_length=1, fail_fast=True, description="Of one sentence")
    texts: Many[Text] = None
    sentences: list[Annotated[list[Text], Field(min_length=1)]] | None = Field(
        None, min_length=1, fail_fast=True, description="Words of each"
    )
    model: Name | None = None

    def asked(self) -> Asked:
        forms = ("text", "words", "texts", "sentences")
        given = [(form, inputs) for form in forms if (inputs := getattr(self, form)) is not None]
        if len(given) != 1:
            raise Problem(422, "text, words, texts or sentences, one of them", where="body")
        ((form, inputs),) = given
        if form in ("texts", "sentences"):
            return Asked(inputs, form)
        return Asked([inputs], form, places={f"{form}[0]": form})  # one sentence has no number


class SpanOut(Strict):
    """Characters ``start`` to ``end``, words ``first`` to ``last``; both ends are exclusive."""

    text: str
    label: str
    start: int
    end: int
    first: int
    last: int
    probability: float = Field(description="Of its least sure word, after the model's temperature")


class TaggedSentence(Strict):
    """Characters count in ``text``: as it was sent, or the words with blanks between."""

    text: str
    words: list[str]
    tags: list[str]
    spans: list[SpanOut]


class TagResponse(Strict):
    model: str
    sentences: list[TaggedSentence]


class AnswerRequest(Request):
    """One question with its context, or several."""

    model_config = _example({"question": "Where was Ada born?", "context": "Ada was born in Hanoi in 1923."})
    question: Text | None = None
    context: Text | None = None
    questions: list[Pair] | None = Field(
        None, min_length=1, fail_fast=True, description="Question and context of each"
    )
    n_best: int = Field(1, ge=1, le=20, description="Answers in all, the given one first")
    model: Name | None = None

    def asked(self) -> Asked:
        one, fix = self.question is not None or self.context is not None, "Send question and context"
        if one == (self.questions is not None):
            raise Problem(422, "question with context, or questions, one of them", where="body", fix=fix)
        if self.questions is not None:
            return Asked(self.questions, "questions", pairs=True)
        if self.question is None or self.context is None:
            missing = "question" if self.question is None else "context"
            raise Problem(422, f"no {missing}", where=missing, fix=fix)
        pair = self.question, self.context  # one question has no number
        return Asked([pair], "questions", pairs=True, places={"questions[0]": "context"})


class AnswerOut(Strict):
    """Characters ``start`` to ``end`` of the context; no answer is the empty text, at 0 and 0."""

    answer: str
    start: int
    end: int
    probability: float = Field(description="Its share among the best 20 spans and no answer")


class Answered(AnswerOut):
    others: list[AnswerOut] = Field(description="The next best, n_best - 1 of them")
    truncated: bool = Field(description="Whether the question was longer than the model reads")


class AnswerResponse(Strict):
    model: str
    answers: list[Answered]


class Score(Strict):
    metric: str = Field(
        description="accuracy; macro_f1 of several labels, entity_f1 of spans, f1 of answers, r2 or mae of "
        "numbers, spearman or found of similarity"
    )
    value: float
    split: str = Field(description="What it was measured on: test, validation, or the name of a file's part")
    examples: int | None = Field(description="How many it was measured on")


class Model(Strict):
    name: str
    kind: Literal["text", "image"]
    gives: Literal["labels", "vectors", "tags", "answers"] = Field(
        "labels", description="vectors: of /v1/embed, /v1/similar; tags: of /v1/tag; answers: of /v1/answer"
    )
    labels: list[str] = Field(description="Of a tagger its tags")
    spans: list[str] = Field([], description="Of a tagger: the kinds of its spans")
    examples: list[str] = Field(description="Sentences that the recipe of a text model names")
    pairs: bool = Field(False, description="Whether it reads pairs of texts, and no single ones")
    max_length: int | None = Field(description="Tokens that are read of a text; null: all of it, or no text")
    size: list[int] | None = Field(description="Height and width that images are brought to")
    precision: Literal["fp32", "bf16", "int8"]
    calibrated: bool = Field(description="Whether a temperature was fitted to held-out data")
    temperature: float = Field(description="1 is none; where each label has its own: see temperatures")
    temperatures: list[float] | None = Field(
        None, description="Of several labels at once, that of each; null with others"
    )
    threshold: float | list[float] | None = Field(
        description="Of the second of two labels, or of each; of one label out of more than two the answer "
        "is the one with the largest multiple of its threshold; none: the most probable"
    )
    abstain_below: float | None = Field(
        None, description="The probability of its label below which it abstains; null: it never does"
    )
    no_answer_threshold: float | None = Field(
        None, description="Of answers: how far no answer must lead to be given; null: it is never given"
    )
    layers: int | None
    heads: int | None
    methods: list[str] = Field(description="Of explanation, those that this model has")
    channels: int | None = Field(description="Of the images that it reads: 1 is black and white")
    example: str | list[str] | None = Field(
        None,
        description="What the page opens with: a text, the two texts of a pair (question and context), or "
        "an image in base64; null: the page draws one",
    )
    multi_label: bool = Field(False, description="Whether it may give several labels at once")
    score: Score | None = Field(None, description="How good it is, as its run measured; null: not known")
    searched: int | None = Field(None, description="Texts of the list that /v1/search looks in; null: none")


class BrokenModel(Strict):
    name: str
    error: str = Field(description="Why it could not be loaded")


class ModelsResponse(Strict):
    models: list[Model]
    broken: list[BrokenModel] = Field([], description="Models that were named but could not be loaded")


def listing(kinds: Sequence[type[Served]]) -> type[ModelsResponse]:
    """The list of models that read these kinds of inputs."""
    names = tuple(dict.fromkeys(("text", "image", *(kind.kind for kind in kinds))))
    fields: dict[str, Any] = {"kind": (Literal[names], ...)}
    model = create_model("Model", __base__=Model, **fields)
    fields = {"models": (list[model], ...)}  # type: ignore[valid-type]  # made at run time
    return create_model("ModelsResponse", __base__=ModelsResponse, **fields)


class StateResponse(Strict):
    state: str


class ErrorBody(Strict):
    code: str
    what: str
    where: str | None
    fix: str | None


class ErrorResponse(Strict):
    error: ErrorBody
