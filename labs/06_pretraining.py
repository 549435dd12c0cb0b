# %% [markdown]
# # 6. Pre-training BERT
#
# What you will see: how words are masked, what a small BERT learns from plain sentences about countries, whether it notices
# which sentence follows, and what its weights are worth to a classifier with few labels.
#
# Where the library does this: [data/masking.py](../src/glassformer/data/masking.py), [masked_lm.py](../src/glassformer/tasks/masked_lm/estimator.py),
# [nn/heads.py](../src/glassformer/nn/heads.py).

# %%
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from lab import BLUE, GREY, RED, answer, apart, bars, budget, measured, plt, points, recorded

import glassformer as gf
from glassformer.data import encode, word_tokenizer
from glassformer.data.corpus import COUNTRIES, TEN, countries_sentences, europe_splits
from glassformer.data.masking import MaskSettings, mask_tokens

torch.set_num_threads(1)
texts = countries_sentences(budget(600, 8_000))
distinct = list(dict.fromkeys(texts))
held = distinct[len(distinct) * 9 // 10 :]
unseen = set(held)
train = [text for text in texts if text not in unseen]  # repeated ones stay: what is said often is learned
print(f"{len(texts)} sentences, {len(distinct)} distinct, {len(held)} of these held out; {texts[0]}")

# %% [markdown]
# ## What becomes of the 15 %
#
# 15 % of the tokens are to be guessed. 80 % of them become [MASK], 10 % a random word, 10 % stay: the model cannot know which of
# the words it reads are true, so it must form an opinion about all.
#
# ![Masked words](../docs/_static/diagrams/masked-words.svg)
#
# **Before you run**: a random word may hit the true one. Does that make the share of words “as it was” larger or smaller than 10 %?

# %%
tokenizer = word_tokenizer(texts, min_count=1)
table = encode(tokenizer, texts, max_length=64)
read, rows = mask_tokens(
    table.ids, MaskSettings.of(tokenizer, share=0.15), np.random.default_rng(0)
)  # change me
before, after = table.ids[rows], read[rows]
fates = Counter(
    np.where(
        after == tokenizer.token_to_id("[MASK]"),
        "[MASK]",
        np.where(after == before, "as it was", "a random word"),
    )
)
share = {name: n / len(rows) for name, n in fates.items()}
shown = " ".join(tokenizer.id_to_token(int(i)) for i in read[: table.starts[1]])
print(shown)
figure, ax = plt.subplots(figsize=(5, 1.6))
bars(ax, share, form="{:.1%}", title="of the chosen tokens")
plt.show()
eligible = int((table.ids >= 5).sum())
answer("masking", f"{len(rows) / eligible:.1%} of {eligible:,} words are chosen; " + ", ".join(f"{s:.1%} {n}" for n, s in share.items())
       + ". “As it was” includes random draws that hit the word itself.")  # fmt: skip

# %% [markdown]
# **Why.** Draws that hit the word itself add to “as it was”: the share is slightly above 10 %, by one in the size of the vocabulary.

# %% [markdown]
# ## What it learns
#
# A BERT of two layers, from scratch. We compare with a baseline that always guesses the most frequent word. Facts are asked for apart: a
# model can know what kind of word must stand somewhere, and not which.
#
# **Before you run**: which will it learn first, that a country follows “of”, or which country?

# %%
settings = dict(tokenizer="word", min_count=1, max_length=48, d_model=64, num_layers=2, num_heads=2, d_ff=128, max_positions=64,
                lr=3e-3, batch_tokens=1024, keep_best=False, seed=0, threads=1)  # fmt: skip
learner = gf.MaskedLM(epochs=budget(2, 20), **settings)
learner.fit(train, validation=held)
seen = [r for r in learner.history_ if r["kind"] == "evaluation"]
counts = np.bincount(table.ids[table.ids >= 5]).astype(float)
frequent = counts.max() / counts.sum()
known = {}
for form in ("{} is the capital of [MASK] .", "{} in [MASK] has a famous park ."):  # change me
    said = [learner.fill(form.format(COUNTRIES[c][0]), top=1)[0][0] for c in TEN]
    known[form] = sum(word == country.lower() for word, country in zip(said, TEN))
    print(form, said)
figure, ax = plt.subplots(figsize=(6, 2.6))
ax.plot(
    [r["epoch"] + 1 for r in seen],
    [r["accuracy"] for r in seen],
    color=BLUE,
    label="guessed right, unseen sentences",
)
ax.axhline(frequent, color=GREY, label="always the most frequent word")
ax.set(xlabel="epoch", ylabel="share")
ax.legend(frameon=False)
plt.show()
for text in ("[MASK] is the capital of France .", "The king and the [MASK] of Ana are wise ."):  # change me
    print(text, [(w, round(p, 2)) for w, p in learner.fill(text, top=3)])
answer(
    "learned",
    f"Masked words of unseen sentences: {seen[0]['accuracy']:.0%} right after the first epoch, {seen[-1]['accuracy']:.0%} after {len(seen)} "
    f"(the most frequent word alone: {frequent:.0%}). Of {len(TEN)} capitals it names the country of "
    + " and of ".join(f"{n} in “{form.format('Paris')}”" for form, n in known.items())
    + f"; always saying one country gives 1 of {len(TEN)} (one training, {len(held)} unseen sentences)"
    + (": the forms of the sentences are learned, the facts hardly." if max(known.values()) <= 2 else "."),
)

# %% [markdown]
# **Why.** The form of a sentence is seen in every sentence, a fact only in a few. The loss falls fastest by learning what pays most often;
# facts come late and need capacity and repetition.

# %% [markdown]
# ## Next sentence
#
# BERT's second task: does this segment follow that one? In half of the pairs the second segment is replaced by one of another
# text, and the model must tell which. Here two sentences belong together when they speak of one country. One of
# the four pairs of each country is held out: the model has read both of its sentences, never one after the other.
# Compare the loss with that of guessing. A model of this size may well learn the words and not the task; later
# models dropped it (Liu et al., 2019).
#
# ![Two segments in one sequence](../docs/_static/diagrams/next-sentence.svg)
#
# **Before you run**: which loss has a model that only guesses between the two?

# %%
rng = np.random.default_rng(0)
together, kept_out = [], []  # learned from, held out
for country, (capital, city, currency, _) in COUNTRIES.items():
    four = [
        f"{first} {second}"
        for first in (f"{capital} is the capital of {country} .", f"{city} in {country} has a famous park .")
        for second in (
            f"people in {country} pay with the {currency} .",
            f"the train to {city} leaves {capital} .",
        )
    ]
    kept_out += [four.pop(int(rng.integers(4)))] * budget(
        1, 5
    )  # each is asked with other strangers every time
    together += four * budget(1, 20)
pairs = gf.MaskedLM(next_sentence=True, epochs=budget(1, 12), **settings)
pairs.fit(together)
for name, some in (("the pairs learned from", together), ("pairs held out", kept_out)):
    judged = pairs.judge(some)
    print(
        f"next sentence, {name}: loss {judged['next_sentence_loss']:.3f} (chance {np.log(2):.3f}); masked words {judged['accuracy']:.0%}"
    )

if file := recorded("recipe-europe-mlm"):
    judged = file["runs"][0]["masked"]
    print(
        "another and easier task, which second half belongs to which first half of one sentence (recipe europe-mlm, judged on "
        f"unseen sentences): loss {judged['next_sentence_loss']:.3f}; masked words {judged['accuracy']:.0%}"
    )

# %% [markdown]
# **Why.** Guessing between two classes costs ln 2 = 0.693. To be below that on pairs held out, the model has to compare the countries of two segments,
# for which it has no reason as long as the words alone lower the loss.

# %% [markdown]
# ## Does it help when labels are few?
#
# The same encoder learns a classification from a few labels: from random weights (a pre-training at a rate of 0, and without the
# start that looks at neighboring words, which `MaskedLM` gives its first heads), and from pre-trained ones. The texts are of the same kind, the labels are new. A point is the
# mean of five trainings of a few hundred steps, each with its own labels; one alone may lie 10 points off by luck. The pre-training is the same for all.

# %%
folder = Path(tempfile.mkdtemp())
plain = europe_splits(budget(600, 8_000))
gf.MaskedLM(epochs=1, **settings | {"lr": 0.0, "neighbours": False}).fit(plain["train"][0]).save(
    folder / "from nothing"
)
gf.MaskedLM(epochs=budget(2, 15), **settings).fit(plain["train"][0]).save(folder / "pre-trained")
few = budget((20,), (20, 60, 200, 600))  # change me
seeds = budget((0,), range(5))
hits: dict[str, list[np.ndarray]] = {
    "from nothing": [],
    "pre-trained": [],
}  # right or not, [seeds, m] for each n
test_x, test_y = plain["test"]
for n in few:
    fit = dict(epochs=max(3, budget(3, 3_000 // n)), lr=1e-3, batch_size=16, max_length=48, threads=1)
    for name, found in hits.items():
        right = []
        for seed in seeds:
            rows = np.random.default_rng(seed).permutation(len(plain["train"][0]))[:n]
            x, y = ([part[i] for i in rows] for part in plain["train"])
            clf = gf.TextClassifier(str(folder / name), **fit, seed=seed).fit(x, y)
            right.append(clf.predict(test_x) == np.array(test_y))
        found.append(np.array(right))
lines = {name: [r.mean() for r in found] for name, found in hits.items()}
gains = [b * 1.0 - a for a, b in zip(*hits.values())]
figure, ax = plt.subplots(figsize=(6, 2.8))
for (name, found), colour in zip(hits.items(), (GREY, RED)):
    by_seed = [r.mean(1) for r in found]
    ax.plot(few, lines[name], "o-", color=colour, label=name)
    ax.fill_between(few, [s.min() for s in by_seed], [s.max() for s in by_seed], color=colour, alpha=0.2)
ax.set(xscale="log", xlabel="labelled sentences", ylabel="test accuracy")
ax.legend(frameon=False)
plt.show()
told = [
    f"{n} labels: {a:.0%} from nothing, {b:.0%} pre-trained, {points(g)}"
    for n, a, b, g in zip(few, *lines.values(), gains)
]
ahead = [str(n) for n, g in zip(few, gains) if apart(g)[1] > 0]
answer(
    "transfer",
    f"Pre-trained on the unlabelled sentences it is ahead beyond chance with {' and '.join(ahead) or 'none'} of {', '.join(map(str, few))} labels: "
    + "; ".join(told)
    + f" (the same encoder, the same steps; {len(seeds)} seeds, {len(test_y):,} unseen sentences, not corrected for {len(few)} comparisons).",
)

# %% [markdown]
# ## Longer pre-trainings, and what they gave
#
# Read from result files. On the left the share of masked words that are guessed right on unseen text: sentences about countries,
# Vietnamese reviews, film reviews. On the right labeled reviews: a BERT with such weights (`ntc-bert`, `imdb-from-mlm`) compared with an
# encoder from scratch. The two of a pair also differ in size, length and tokens, and some have one seed or two: what pre-training adds
# cannot be read from them.

# %%
masked = measured("europe-mlm", "ntc-mlm", "imdb-mlm", "imdb-mlm-minilm")
tuned = measured("ntc-bert", "ntc-encoder", "imdb-from-mlm", "imdb-encoder-small-best")
figure, axes = plt.subplots(1, 2, figsize=(9, 2))
bars(axes[0], masked, form="{:.1%}", title="masked words guessed right")
bars(axes[1], tuned, form="{:.1%}", colour=RED, title="test accuracy")
plt.show()

# %% [markdown]
# ## Exercises
#
# Write the function under the name in brackets; `from lab import check` and `check("06", masked=masked)` run its hidden test.
#
# 1. Write BERT's masking for a list of words. *(`masked`)*
# 2. Why not [MASK] for all chosen words? Measure how many of the words that a model can read are false, with 80/10/10 and with
#    [MASK] for all. *(`false_share`)*
# 3. Perplexity is e to the loss. Which accuracy and perplexity has a model that knows word frequencies only? *(`unigram`)*
#
# Where the library does this: [tasks/masked_lm/run.py](../src/glassformer/tasks/masked_lm/run.py), [train/objectives.py](../src/glassformer/train/objectives.py).
