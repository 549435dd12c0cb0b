"""Which explanation to believe: every method against random orders on test inputs of a finished run.

    .venv/bin/python -m benchmarks.quality.explain runs/imdb-minilm-seed0 --data imdb --count 500 [--max-length 128]
    .venv/bin/python -m benchmarks.quality.explain runs/cifar10-vit-seed0 --data cifar10 --count 500

For each method: deletion, insertion, comprehensiveness and sufficiency beside random orders of the same
input, with 95 % intervals; under each way of hiding, by how much insertion less deletion exceeds that of
random orders; deletion and insertion between the worst and the best order (``orders.py``); seconds; the
randomisation check; agreement between methods; stability under a synonym (our own list) and a typo, or a
change of brightness and a small crop; a verdict in words. Peers: Captum's integrated gradients and occlusion,
for texts SHAP's partition explainer and interpreto's KernelSHAP, where installed. Also what the heads do and,
for texts, counter-examples to the attention map. ``--slow-count`` gives methods of many passes, and peers,
fewer inputs. Those judged so far lie in ``--work``, so that an interrupted run goes on; ``--noise 0``,
``--stable 0``, ``--ablate 0`` and ``--search 0`` leave a part out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from captum.attr import IntegratedGradients, Occlusion
from rich.console import Console

from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.errors import ConfigError
from glassformer.explain import faithfulness, heads, sanity
from glassformer.explain.faithfulness import MIN_DIFFERENCE
from glassformer.explain.methods import NETWORK_METHODS, explain, make_subject, methods_for
from glassformer.explain.orders import deletion_bounds, normalize_metrics
from glassformer.explain.subject import Subject, run_rows
from glassformer.tasks.load import load

BUDGET = 500  # evaluations of SHAP's partition explainer by default
MANY_PASSES = ("integrated_gradients", "occlusion", "shapley")  # they run the model many times per input

console = Console(stderr=True)


def peers(subject: Any) -> dict[str, Callable[[], np.ndarray]]:
    """Captum's methods on the same rows of the encoder, the same baseline and the same label."""
    rows, baseline = subject.embeddings[None], subject.baseline("mask")[None]

    def forward(x: Any) -> Any:
        return run_rows(subject.model, x.flatten(0, 1), subject.packing(len(x))).logits

    def attribute(method: Any, **options: Any) -> np.ndarray:
        given = {"baselines": baseline, "target": subject.target, **options}
        return method(forward).attribute(rows, **given).sum(-1)[0].detach().numpy()

    window = (1, rows.shape[-1])
    few: dict[str, Any] = {"n_steps": 50, "internal_batch_size": 16}
    hidden: dict[str, Any] = {"sliding_window_shapes": window, "perturbations_per_eval": 16}
    found: dict[str, Callable[[], np.ndarray]] = {}
    if subject.grid is None and find_spec("shap"):  # the tests' installation lacks it
        found["shap: partition"] = lambda: owen(subject)
        found["shapley, SHAP's budget"] = lambda: same_budget(subject)
    found["captum: integrated gradients"] = lambda: attribute(IntegratedGradients, **few)
    return found | {"captum: occlusion": lambda: attribute(Occlusion, **hidden)}


def same_budget(subject: Subject) -> np.ndarray:
    """Our ``shapley`` of single tokens with as many evaluations as SHAP's partition explainer."""
    pairs = max(1, BUDGET // (2 * max(len(subject.maskable_indices), 1)))
    return explain(subject, method="shapley", unit="token", pairs=pairs, maps=False).scores


def owen(subject: Subject) -> np.ndarray:
    """SHAP's partition explainer with its default of ``BUDGET`` evaluations: Owen values over its own tree of the tokens."""
    from shap import PartitionExplainer
    from shap.maskers import Masker
    from shap.maskers._text import partition_tree

    chosen, scores = subject.maskable_indices, np.zeros(len(subject))
    if len(chosen) < 2:
        return scores
    tree = partition_tree([subject.input_fields["tokens"][i] for i in chosen], [])
    tree[:, 2] = tree[:, 3] / tree[:, 3].max()  # as SHAP's own masker of texts

    class Shown(Masker):
        """What SHAP masks: nothing itself, but the rows that ``Subject.logits`` keeps."""

        shape, clustering = (1, len(chosen)), tree

        def __call__(self, mask: np.ndarray, _: Any) -> tuple[np.ndarray]:
            return (mask[None],)

    def logit(masks: np.ndarray) -> np.ndarray:
        keep = np.zeros((len(masks), len(subject)), bool)
        keep[:, chosen] = masks
        return subject.logits(keep)[:, subject.target]

    scores[chosen] = PartitionExplainer(logit, Shown())(chosen[None], silent=True).values[0]
    return scores


def interpreto_peer(clf: Any) -> Callable[[str, Subject], np.ndarray] | None:
    """interpreto's KernelSHAP of single tokens with ``BUDGET`` evaluations; None if it is not installed."""
    if clf.NOUN != "texts" or not find_spec("interpreto"):
        return None
    import torch
    from interpreto import Granularity, KernelShap
    from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerFast
    from transformers.modeling_outputs import SequenceClassifierOutput

    network, special = clf.predictor(), ("mask", "pad", "unk", "cls", "sep")
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in special}
    about = {"tokenizer_object": clf.tokenizer_, "model_max_length": clf.max_length}
    tokenizer = PreTrainedTokenizerFast(**about, **tokens)

    class OursForSequenceClassification(PreTrainedModel):
        """The classifier as interpreto expects it, which asks for transformers' base class and this ending."""

        config_class = BertConfig

        def __init__(self) -> None:
            super().__init__(BertConfig(vocab_size=len(tokenizer), num_labels=len(clf.classes_)))
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
            return SequenceClassifierOutput(logits=self.network(input_ids, attention_mask.bool()).logits)

    options = {"batch_size": 64, "granularity": Granularity.TOKEN, "n_perturbations": BUDGET}
    explainer = KernelShap(OursForSequenceClassification().eval(), tokenizer, **options)

    def scores(text: str, subject: Subject) -> np.ndarray:
        found = explainer(text, targets=torch.tensor([[subject.target]]))[0].attributions
        out = np.zeros(len(subject))
        # it leaves out unknown tokens, as it does special ones
        tokens = subject.input_fields["tokens"]
        known = [i for i in subject.maskable_indices if tokens[i] != tokenizer.unk_token]
        out[known] = found.flatten().float().numpy()
        return out

    return scores


def judge_inputs(
    clf: Any, inputs: list[Any], work: Path, draws: int, methods: list[str], with_peers: bool, slow_count: int
) -> list[dict[str, Any]]:
    """Metrics, seconds, errors and agreement for each input, kept in a file line by line.

    Only the first ``slow_count`` inputs have methods of many passes, and peers.
    """
    lines = work.read_text(encoding="utf-8").splitlines() if work.exists() else []
    done = [json.loads(line) for line in lines]
    outside = interpreto_peer(clf) if with_peers else None
    for number in range(len(done), len(inputs)):
        subject = replace(make_subject(clf, inputs[number]), predictor=clf.predictor())
        scores, seconds, errors = {}, {}, {}
        all_methods = number < slow_count
        for method in (name for name in methods if all_methods or name not in MANY_PASSES):
            started = time.perf_counter()
            e = explain(subject, method=method, maps=False)
            scores[method], seconds[method] = e.scores, time.perf_counter() - started
            if e.error is not None:
                errors[method] = e.error
        agree = faithfulness.agreement(scores, subject.maskable_indices if subject.grid is None else None)
        others = peers(subject) if with_peers and all_methods else {}
        if outside is not None and all_methods:
            others["interpreto: KernelSHAP"] = partial(outside, inputs[number], subject)
        for name, attribute in others.items():
            started = time.perf_counter()
            found = attribute()
            seconds[name] = time.perf_counter() - started
            scores[name] = found if subject.grid is None else found[subject.maskable_indices]
        judged = {}
        for by in subject.operators:
            judged[by] = faithfulness.compare_with_random(subject, scores, draws=draws, seed=number, by=by)
        first = subject.operators[0]
        bounds = deletion_bounds(subject, subject.target, first)
        record = {
            "figures": judged[first],
            "gaps": {
                by: {name: one["insertion"] - one["deletion"] for name, one in found.items()}
                for by, found in judged.items()
            },
            "normalized": {name: normalize_metrics(one, *bounds) for name, one in judged[first].items()},
            "span": bounds[1] - bounds[0],
            "seconds": seconds, "errors": errors, "tokens": len(subject), "agreement": agree,
        }  # fmt: skip
        done.append(record)
        with work.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if (number + 1) % 10 == 0:
            console.print(f"{number + 1} of {len(inputs)} judged")
    return done[: len(inputs)]


def completeness(judged: list[dict[str, Any]]) -> dict[str, float]:
    """How far the scores of integrated gradients are from summing to the logit's difference, relative to it."""
    method = "integrated_gradients"
    errors = np.array([j["errors"][method] for j in judged if method in j["errors"]])
    shares = {"median": np.median(errors), "max": errors.max(), "share_within_1e-3": (errors <= 1e-3).mean()}
    return {name: float(value) for name, value in shares.items()}


def agreement(judged: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean rank correlation of every pair of methods."""
    names = list(judged[0]["agreement"])
    everywhere = [j["agreement"] for j in judged if len(j["agreement"]) == len(names)]
    return {a: {b: round(float(np.mean([one[a][b] for one in everywhere])), 4) for b in names} for a in names}


def under_operators(judged: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """By how much a method's gap between insertion and deletion exceeds that of random orders, for each way
    of hiding; and its deletion and insertion between the worst and the best order, where orders differ."""
    judged = [j for j in judged if method in j["seconds"] or method == "random"]
    told = [j for j in judged if j["span"] > MIN_DIFFERENCE]
    return {
        "operators": {
            by: faithfulness.summary(np.array([j["gaps"][by][method] - j["gaps"][by]["random"] for j in judged]))
            for by in judged[0]["gaps"]
        },
        "normalized": {
            key: faithfulness.summary(np.array([j["normalized"][method][key] for j in told]))
            for key in ("deletion", "insertion")
        },
    }  # fmt: skip


def against_peers(judged: list[dict[str, Any]]) -> dict[str, Any]:
    """By how much the gap between insertion and deletion of our methods exceeds that of each peer, on the same inputs."""
    gaps = judged[0]["gaps"]
    names = list(next(iter(gaps.values())))
    peers = [name for name in names if name.startswith(("captum", "shap:", "interpreto"))]
    judged = [j for j in judged if peers and peers[0] in j["seconds"]]
    return {
        own: {
            peer: {
                by: faithfulness.summary(np.array([j["gaps"][by][own] - j["gaps"][by][peer] for j in judged]))
                for by in gaps
            }
            for peer in peers
        }
        for own in ("shapley, SHAP's budget", "shapley", "decomposition", "gim")
        if own in names
    }


def head_part(clf: Any, inputs: list[Any], labels: list[Any]) -> dict[str, Any]:
    """Where heads look, and what is lost without each."""
    figures = heads.head_statistics([make_subject(clf, x) for x in inputs])
    lost = heads.ablation(clf, inputs, labels)
    return {
        "n": len(inputs), "figures": {k: np.round(v, 4).tolist() for k, v in figures.items()},
        "words": heads.describe(figures),
        "ablation": {k: np.round(v, 5).tolist() if isinstance(v, np.ndarray) else v for k, v in lost.items()},
    }  # fmt: skip


def load_test(clf: Any, data: str) -> tuple[list[Any], list[Any]]:
    """The test inputs of a named source or a path, with their labels as the classifier names them."""
    if clf.NOUN == "texts":
        split = load_text_dataset(data, splits=["test"]).splits["test"]
        return list(split.texts), list(split.labels or [])
    seen = load_image_dataset(data, splits=["test"]).splits["test"]
    return list(seen.images), list(seen.labels or [])


def cut_texts(clf: Any, max_length: int | None) -> None:
    """Let the classifier read ``max_length`` tokens of a text at most; ConfigError where it cannot."""
    if max_length is None:
        return
    if clf.NOUN != "texts":
        raise ConfigError(f"{clf.NOUN} have no tokens to cut", where="--max-length", fix="Leave it out")
    if not 3 <= max_length <= clf.max_length:
        fix = f"Give 3 to {clf.max_length}, which it was trained with"
        raise ConfigError(f"{max_length} tokens", where="--max-length", fix=fix)
    clf.max_length = max_length


def sentences_of(texts: list[str]) -> list[str]:
    """One sentence a review, so that a change of one word is a change of the whole input."""
    found = (text.replace("<br />", " ").split(". ")[0] for text in texts)
    return [s for s in found if 40 < len(s) < 200]


def to_change(clf: Any, inputs: list[Any], count: int, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """What stability is measured on, and the small changes."""
    if clf.NOUN == "images":
        return inputs[:count], {"brightness": sanity.with_brightness, "crop": sanity.with_crop}
    sentences = sentences_of(inputs)
    pick = np.random.default_rng(seed + 1).permutation(len(sentences))
    drawn = (sentences[i] for i in pick)
    usable = (s for s in drawn if sanity.with_synonym(s, np.random.default_rng(0)) is not None)
    return list(islice(usable, count)), {"synonym": sanity.with_synonym, "typo": sanity.with_typo}


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


@command(
    "explanations against random orders",
    ("run", dict(type=Path)),
    out=lambda options: RESULTS / f"explain-{options.name or options.run.resolve().name}.json",
    data="imdb",
    methods=dict(nargs="+", default=[], choices=NETWORK_METHODS, help="only these, without peers"),
    count=(500, "inputs for the table"),
    slow_count=(int, "inputs for methods of many passes and for peers; default: as many as --count"),
    noise=(30, "inputs for the randomisation check"),
    stable=(200, "inputs for stability"),
    ablate=(200, "inputs for heads and their ablation"),
    search=(1000, "sentences searched for counter-examples"),
    draws=(5, "random orders an input"),
    max_length=(int, "tokens of a text that are read; default: the run's own"),
    seed=0,
    work=Path("runs"),
    name=dict(default=None, help="of the result; the run's folder by default"),
)
def main(args: Any) -> dict[str, Any]:
    clf = load(args.run)
    cut_texts(clf, args.max_length)
    inputs, labels = load_test(clf, args.data)
    order = np.random.default_rng(args.seed).permutation(len(inputs))
    drawn = [inputs[i] for i in order]  # a source may have all of one label first
    changeable, changes = to_change(clf, drawn if clf.NOUN == "images" else inputs, args.stable, args.seed)
    sentences = sentences_of(drawn)[: args.search] if clf.NOUN == "texts" else []
    inputs, labels = ([column[i] for i in order[: args.count]] for column in (inputs, labels))
    name = args.name or args.run.resolve().name
    args.work.mkdir(parents=True, exist_ok=True)
    asked = [str(args.run.resolve()), args.data, args.seed, args.draws, args.max_length, *args.methods]
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    fitting = methods_for(clf.model_)
    wanted = args.methods or NETWORK_METHODS
    methods = [name for name in NETWORK_METHODS if name in fitting and name in wanted]
    work = args.work / f"explain-{name}-{key}.jsonl"
    slow_count = args.count if args.slow_count is None else args.slow_count
    judged = judge_inputs(clf, inputs, work, args.draws, methods, not args.methods, slow_count)
    rows = faithfulness.table([j["figures"] for j in judged])

    noise = {}
    subjects = [make_subject(clf, x) for x in inputs[: args.noise]]
    for method in methods if args.noise else ():
        # A fixed number of points: under noise, completeness is not what is asked for.
        options = {"steps": 32, "max_steps": 32} if method == "integrated_gradients" else {}
        noise[method] = sanity.randomization(subjects, method, **options)
        console.print(f"{method}: rank correlation {noise[method][-1]['mean']:.2f} when all is noise")
    stable: dict[str, Any] = {}
    for method in methods if args.stable else ():
        stable[method] = {
            named: sanity.stability(clf, changeable, method, change=change, seed=args.seed)
            for named, change in changes.items()
        }
        console.print(f"{method}: stability measured")

    found = heads.counter_examples(clf, sentences) if sentences else []
    result = {
        "run": name, "weights_source": clf.weights_source_, "data": Path(args.data).name, "inputs": clf.NOUN, "count": len(inputs),
        "seed": args.seed, "max_length": getattr(clf, "max_length", None), "hidden_by": "mask",
        "random_orders": args.draws,
        "methods": {
            method: {
                **rows[method], **under_operators(judged, method),
                "seconds": faithfulness.summary(np.array([j["seconds"][method] for j in judged if method in j["seconds"]])),
                **({"randomisation": noise[method], "randomisation_passed": sanity.passes(noise[method])}
                   if method in noise else {}),
                "stability": stable.get(method, {}),
                "verdict": faithfulness.verdict(
                    rows[method], abs(noise[method][-1]["mean"]) if method in noise else None
                ),
            }
            for method in rows if method != "random"
        },
        "random": rows["random"] | under_operators(judged, "random"),
        **({"completeness_error": completeness(judged)} if "integrated_gradients" in methods else {}),
        "against_peers": against_peers(judged),
        "agreement": agreement(judged),
        "synonyms": "our own list of about 75 pairs (explain/sanity.py)",
        **({"heads": head_part(clf, inputs[: args.ablate], labels[: args.ablate])} if args.ablate else {}),
        "counter_examples": {
            "searched": len(sentences), "found": len(found),
            "clearest": [{**asdict(c), "in_words": c.in_words()} for c in found[:5]],
        },
    }  # fmt: skip
    for method in result["methods"]:
        console.print(f"{method}: {result['methods'][method]['verdict']}")
    return rounded(result)
