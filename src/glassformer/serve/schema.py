"""Schemas of requests and responses, from which FastAPI generates the OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import CLS, SEP
from glassformer.inputs.images import ServedImages
from glassformer.inputs.inputs import ServedInputs
from glassformer.inputs.texts import ServedTexts
from glassformer.serve.problems import Problem

Element = TypeVar("Element")
EXACTLY_ONE = "Send one of them; GET /openapi.json describes valid requests"
Text = Annotated[str, Field(min_length=1)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]
# Validation stops at the first error, because a list of all errors could be large.
ListOf = Annotated[list[Element], Field(min_length=1, fail_fast=True)] | None
ImageBytes = Annotated[str, Field(min_length=1, description="The bytes of an image file, in base64")]
# A model has the name of its folder, which has at most 255 characters.
Name = Annotated[
    str, Field(max_length=255, description="Name of a model in /v1/models; default: the first suitable one")
]
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


def described_field(description: str, default: Any = ..., **limits: Any) -> Any:
    """A field with its description for the OpenAPI page; without a default, it is required."""
    return Field(default, description=description, **limits)


@dataclass(frozen=True)
class RequestInputs:
    """The inputs of a request, and the name of the field that contained them."""

    inputs: Sequence[Any]
    field_name: str
    input_kind: type[ServedInputs] = ServedTexts
    pairs: bool = False
    # For error messages: ``field_name[i]`` -> the field that the client sent, if it has another name
    fields: Mapping[str, str] = field(default_factory=dict)


def _example(body: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [body]})


class Strict(BaseModel):
    """Base class of all schemas: unknown fields and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Request(Strict):
    """Accepts ``text`` for ``texts``, ``image`` for ``images``, and vice versa."""

    READS: ClassVar[Sequence[type[ServedInputs]]] = ()

    def to_inputs(self) -> RequestInputs:
        """The inputs of the request; raises Problem for missing or conflicting fields."""
        texts = self.field_values("text")
        if texts is None:
            raise Problem(422, "texts are missing", where="texts", fix='Send {"texts": ["..."]}')
        return RequestInputs(texts, "texts", fields=self.sent_fields("text"))

    def inputs_by_kind(self, plural: str = "") -> list[RequestInputs]:
        """The inputs of the request, for each kind in ``READS``; ``plural``: suffix of field names."""
        kinds = [(kind, self.field_values(kind.field)) for kind in self.READS]
        return [
            RequestInputs(inputs, kind.field + plural, kind, fields=self.sent_fields(kind.field))
            for kind, inputs in kinds
            if inputs is not None
        ]

    def sent_fields(self, name: str) -> dict[str, str]:
        """``RequestInputs.fields`` if the request has the singular field ``name``; otherwise empty."""
        return {} if getattr(self, name, None) is None else {f"{name}s[0]": name}

    def field_values(self, name: str) -> list[str] | None:
        """The value of the field ``name`` or of its plural, as a list; None if neither is set.

        Raises:
            Problem: both are set.
        """
        value, values = (getattr(self, field, None) for field in (name, f"{name}s"))
        if value is not None and values is not None:
            raise Problem(422, f"both {name} and {name}s are given", where="body", fix="Send one of them")
        return values if value is None else [value]


class PredictRequest(Request):
    """Texts, pairs of texts, or images."""

    model_config = _example({"texts": ["A compelling story, mediocre acting.", "Dull."]})
    READS: ClassVar[Sequence[type[ServedInputs]]] = (ServedTexts, ServedImages)
    texts: ListOf[Text] = None
    images: ListOf[ImageBytes] = None
    pairs: list[Pair] | None = described_field(
        "Pairs of texts, for models of pairs", None, min_length=1, fail_fast=True
    )
    text: Text | None = described_field("Same as texts with one text", None)
    image: ImageBytes | None = described_field("Same as images with one image", None)
    top: int | None = described_field(
        "Return the probabilities of this many most probable classes only", None, ge=1, le=10_000
    )
    model: Name | None = None

    def to_inputs(self) -> RequestInputs:
        inputs = self.inputs_by_kind("s")
        if self.pairs is not None:
            inputs.append(RequestInputs([TextPair(*pair) for pair in self.pairs], "pairs", pairs=True))
        if len(inputs) != 1:
            what = "exactly one of texts, pairs and images is required"
            raise Problem(422, what, where="body", fix=EXACTLY_ONE)
        return inputs[0]


class Prediction(Strict):
    label: str
    probability: float = described_field(
        "Calibrated probability of the label; for multi-label, of the least certain one"
    )
    probabilities: dict[str, float]
    truncated: bool = described_field("Whether the text was longer than the model reads")
    labels: list[str] | None = described_field(
        "For multi-label models: all predicted labels; else absent", None
    )
    abstains: bool | None = described_field(
        "true: the probability of the label is below the model's abstain_below; else absent", None
    )


class PredictedNumber(Strict):
    number: float
    interval: list[float] | None = described_field(
        "90 % prediction interval; absent if too few examples were held out", None
    )
    truncated: bool = described_field("Whether the text was longer than the model reads")


class PredictResponse(Strict):
    model: str
    predictions: list[Prediction] = described_field("Empty with regressors")
    numbers: list[PredictedNumber] | None = described_field("For regressors; else absent", None)


class ExplainRequest(Request):
    """One text, pair or image, and the explanation method."""

    model_config = _example({"text": "A compelling story, mediocre acting.", "method": "rollout"})
    READS: ClassVar[Sequence[type[ServedInputs]]] = (ServedTexts, ServedImages)
    text: Text | None = None
    text_pair: Text | None = described_field("The second text, for a model of pairs", None)
    image: ImageBytes | None = None
    texts: list[Text] | None = described_field("Same as text, in a list", None, min_length=1, max_length=1)
    images: list[ImageBytes] | None = described_field(
        "Same as image, in a list", None, min_length=1, max_length=1
    )
    model: Name | None = None
    method: Method | None = described_field("Default: the first of the model's methods", None)
    target: str | None = described_field(
        "The label to explain; not with rollout, attention", None, max_length=200
    )
    word: int | str | None = described_field(
        "For taggers: word of the text to explain, or its number from 0", None
    )
    layer: int | None = described_field("With attention; -1 is the last", None, ge=-1000, le=1000)
    head: int | None = described_field("With attention; default: the mean of all", None, ge=-1000, le=1000)

    def to_inputs(self) -> RequestInputs:
        inputs = self.inputs_by_kind()
        if len(inputs) != 1:
            raise Problem(422, "exactly one of text and image is required", where="body", fix=EXACTLY_ONE)
        if self.text_pair is None:
            return inputs[0]
        if inputs[0].input_kind is not ServedTexts:
            fix = "Send both texts of the pair"
            raise Problem(422, "text_pair is given without text", where="body", fix=fix)
        return RequestInputs([(inputs[0].inputs[0], self.text_pair)], "text", pairs=True)


def extend_request(request: type[Request], kinds: Sequence[type[ServedInputs]]) -> type[Request]:
    """A subclass of a request class with fields for further kinds of inputs."""
    distinct = dict.fromkeys(kinds if request.READS else ())
    new_kinds = [kind for kind in distinct if kind.field not in request.model_fields]
    if not new_kinds:
        return request
    fields: dict[str, Any] = {}
    for kind in new_kinds:
        field: Any = Annotated[kind.element | None, Field(description=kind.element_description)]
        fields |= {f"{kind.field}s": (ListOf[kind.element], None), kind.field: (field, None)}
    extended: Any = create_model(request.__name__, __base__=request, __doc__=request.__doc__, **fields)
    extended.READS = (*request.READS, *new_kinds)
    return extended


class Piece(Strict):
    """A word with its score, or the text between two words (without a score)."""

    text: str
    score: float | None


class ExplainResponse(Strict):
    model: str
    label: str
    probability: float
    method: str
    target: str | None
    pieces: list[Piece] = described_field("The text in order; empty for images")
    second: int | None = described_field("For pairs: index of the piece where the second text begins", None)
    special: list[Piece] = described_field(
        f"Special tokens such as {CLS} and {SEP}, which are not part of the text"
    )
    scores: list[list[float]] = described_field("Scores of patches, by row and column; empty for texts")
    image: str | None = described_field("data: URL of the image as the model saw it")
    error: float | None = described_field("Integrated gradients: relative error of the sum")
    settings: dict[str, Any]
    notes: list[str] = described_field(
        "How to read the scores of the method; which part of the text was left out"
    )


class EmbedRequest(Request):
    """Texts to embed."""

    model_config = _example({"texts": ["A dog runs.", "Rain falls."]})
    texts: ListOf[Text] = None
    text: Text | None = described_field("Same as texts with one text", None)
    model: Name | None = None


class EmbedResponse(Strict):
    model: str
    vectors: list[list[float]] = described_field("One per text, normalized to length 1")
    truncated: list[bool] = described_field("Whether a text was longer than the model reads")


class SimilarRequest(Request):
    """Pairs of texts to compare."""

    model_config = _example({"pairs": [["A dog runs.", "The dog ran."]]})
    pairs: list[Pair] = Field(min_length=1, fail_fast=True)
    model: Name | None = None
    explain: bool = described_field(
        "For one pair: also return what each pair of tokens adds to the cosine", False
    )

    def to_inputs(self) -> RequestInputs:
        if self.explain and len(self.pairs) > 1:
            fix = "Send one pair"
            raise Problem(422, "only one pair can be explained at a time", where="explain", fix=fix)
        texts = [text for pair in self.pairs for text in pair]
        fields = {f"pairs[{i}]": f"pairs[{i // 2}][{i % 2}]" for i in range(len(texts))}
        return RequestInputs(texts, "pairs", fields=fields)


class PairExplanation(Strict):
    """Contributions of token pairs to the cosine, which is the sum of the table."""

    cosine: float
    tokens: list[list[str]] = described_field("Tokens of the first and of the second text")
    table: list[list[float]] = described_field(
        "One row per token of the first text, one column per token of the second"
    )
    notes: list[str]


class SimilarResponse(Strict):
    model: str
    cosines: list[float]
    truncated: list[bool] = described_field("Whether a text of the pair was longer than the model reads")
    explanation: PairExplanation | None


class SearchRequest(Request):
    """Queries for semantic search in the texts that the server was started with."""

    model_config = _example({"texts": ["Can I return it?"], "count": 3})
    texts: ListOf[Text] = None
    text: Text | None = described_field("Same as texts with one text", None)
    count: int = described_field("Number of results per query", 5, ge=1, le=100)
    least: float | None = described_field("Minimum cosine similarity of a result", None, ge=-1, le=1)
    model: Name | None = None


class FoundText(Strict):
    row: int = described_field("Row in the file of the list, or position from 1")
    cosine: float
    text: str
    columns: dict[str, Any] = described_field("Other columns of the row")


class SearchAnswer(Strict):
    found: list[FoundText] = described_field("Results, the nearest first; may be empty")
    nearest: float = described_field("Cosine of the nearest text, even if it is not in the results")


class SearchResponse(Strict):
    model: str
    answers: list[SearchAnswer] = described_field("One per query")
    truncated: list[bool] = described_field("Whether a text was longer than the model reads")


class TagRequest(Request):
    """Sentences to tag, as texts (split like the training data) or as words; exactly one of four fields."""

    model_config = _example({"text": "Ann left Rome"})
    text: Text | None = None
    words: list[Text] | None = described_field("Words of one sentence", None, min_length=1, fail_fast=True)
    texts: ListOf[Text] = None
    sentences: list[Annotated[list[Text], Field(min_length=1)]] | None = described_field(
        "Words of several sentences", None, min_length=1, fail_fast=True
    )
    model: Name | None = None

    def to_inputs(self) -> RequestInputs:
        names = ("text", "words", "texts", "sentences")
        fields = [(name, value) for name in names if (value := getattr(self, name)) is not None]
        if len(fields) != 1:
            raise Problem(422, "exactly one of text, words, texts and sentences is required", where="body")
        ((name, value),) = fields
        if name in ("texts", "sentences"):
            return RequestInputs(value, name)
        return RequestInputs([value], name, fields={f"{name}[0]": name})


class SpanOut(Strict):
    """Characters ``start`` to ``end``, words ``first`` to ``last``; both ends are exclusive."""

    text: str
    label: str
    start: int
    end: int
    first: int
    last: int
    probability: float = described_field("Calibrated probability of its least certain word")


class TaggedSentence(Strict):
    """Character positions refer to ``text``: the text as sent, or the words joined by spaces."""

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
    questions: list[Pair] | None = described_field(
        "Pairs of question and context", None, min_length=1, fail_fast=True
    )
    n_best: int = described_field("Number of candidate answers, the best first", 1, ge=1, le=20)
    model: Name | None = None

    def to_inputs(self) -> RequestInputs:
        is_single, fix = self.question is not None or self.context is not None, "Send question and context"
        if is_single == (self.questions is not None):
            what = "either question with context, or questions is required"
            raise Problem(422, what, where="body", fix=fix)
        if self.questions is not None:
            return RequestInputs(self.questions, "questions", pairs=True)
        if self.question is None or self.context is None:
            missing = "question" if self.question is None else "context"
            raise Problem(422, f"the {missing} is missing", where=missing, fix=fix)
        pair = self.question, self.context
        return RequestInputs([pair], "questions", pairs=True, fields={"questions[0]": "context"})


class AnswerOut(Strict):
    """Characters ``start`` to ``end`` of the context; no answer is the empty text with start and end 0."""

    answer: str
    start: int
    end: int
    probability: float = described_field("Probability among the best 20 spans and no answer")


class Answered(AnswerOut):
    others: list[AnswerOut] = described_field("The next best answers, at most n_best - 1")
    truncated: bool = described_field("Whether the question was longer than the model reads")


class AnswerResponse(Strict):
    model: str
    answers: list[Answered]


class Score(Strict):
    metric: str = described_field(
        "accuracy; multi-label: macro_f1; taggers: entity_f1; question answering: f1; "
        "regression: r2 or mae; similarity: spearman or found"
    )
    value: float
    split: str = described_field("Split that it was measured on, such as test or validation")
    examples: int | None = described_field("Number of examples in this split")


class Model(Strict):
    name: str
    kind: Literal["text", "image"]
    gives: Literal["labels", "vectors", "tags", "answers"] = described_field(
        "vectors: for /v1/embed, /v1/similar; tags: for /v1/tag; answers: for /v1/answer", "labels"
    )
    labels: list[str] = described_field("For taggers, the tags")
    spans: list[str] = described_field("For taggers: the entity types", [])
    examples: list[str] = described_field("Example sentences from the recipe")
    pairs: bool = described_field("Whether the model reads pairs of texts instead of single ones", False)
    max_length: int | None = described_field(
        "Maximum number of tokens of a text; null: unlimited, or not a text model"
    )
    size: list[int] | None = described_field("Height and width that images are resized to")
    precision: Literal["fp32", "bf16", "int8"]
    calibrated: bool = described_field("Whether a temperature was fitted to held-out data")
    temperature: float = described_field("1: not scaled; for one temperature per label, see temperatures")
    temperatures: list[float] | None = described_field(
        "For multi-label models: the temperature of each label; else null", None
    )
    threshold: float | list[float] | None = described_field(
        "Decision threshold of the second of two labels, or of each label; with more than two "
        "classes, the prediction has the largest ratio of probability and threshold; null: none"
    )
    abstain_below: float | None = described_field(
        "The model abstains if the label has a lower probability; null: it never abstains", None
    )
    no_answer_threshold: float | None = described_field(
        "For question answering: score margin above which no answer is predicted; null: never", None
    )
    layers: int | None
    heads: int | None
    methods: list[str] = described_field("Explanation methods of this model")
    channels: int | None = described_field("Channels of its images; 1: grayscale")
    example: str | list[str] | None = described_field(
        "First input on the page: a text, the two texts of a pair (question and context), or an "
        "image in base64; null: the page draws one",
        None,
    )
    multi_label: bool = described_field("Whether the model is multi-label", False)
    score: Score | None = described_field("Main metric, measured by its run; null: unknown", None)
    searched: int | None = described_field("Number of texts that /v1/search searches; null: none", None)


class BrokenModel(Strict):
    name: str
    error: str = described_field("Why it could not be loaded")


class ModelsResponse(Strict):
    models: list[Model]
    broken: list[BrokenModel] = described_field("Models that could not be loaded", [])


def models_response(kinds: Sequence[type[ServedInputs]]) -> type[ModelsResponse]:
    """The response class of /v1/models for these kinds of inputs."""
    names = tuple(dict.fromkeys(("text", "image", *(kind.kind for kind in kinds))))
    fields: dict[str, Any] = {"kind": (Literal[names], ...)}
    model = create_model("Model", __base__=Model, **fields)
    fields = {"models": (list[model], ...)}  # type: ignore[valid-type]  # created at run time
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
