# %% [markdown]
# # 6. Pre-training BERT
#
# What you will see: how words are masked, what a small BERT learns from plain sentences about countries, whether it notices
# which sentence follows, and what its weights are worth to a classifier with few labels.
#
# Where the library does this: [data/masking.py](../src/glassformer/data/masking.py), [masked_lm.py](../src/glassformer/tasks/masked_lm/estimator.py),
# [nn/heads.py](../src/glassformer/nn/heads.py).

# %%
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from lab import answer, bars, budget, check, measured, plot, recorded

import glassformer as gf
from glassformer.data import encode, word_tokenizer
from glassformer.data.corpus import COUNTRIES, TEN, countries_sentences, europe_splits
from glassformer.data.masking import MaskSettings, mask_tokens

# %%
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
# **Idea.** Text without labels can be its own task: hide some words and predict them from the others. Unlike a model that writes, a *masked* language model
# reads both sides of the gap. 15 % of the tokens are to be predicted. 80 % of them become [MASK], 10 % a random word, 10 % stay: the model cannot know which of
# the words it reads are true, so it must form an opinion about all.
#
# ![Masked words](../docs/_static/diagrams/masked-words.svg)
#
# **Before you run**: a random word may hit the true one. Does that make the share of words “as it was” larger or smaller than 10 %?

# %%
tokenizer = word_tokenizer(texts, min_count=1)
table = encode(tokenizer, texts, max_length=64)
settings = MaskSettings.of(tokenizer, share=0.15)  # change me
read, places = mask_tokens(table.ids, settings, np.random.default_rng(0))
print(*(tokenizer.id_to_token(int(i)) for i in read[: table.starts[1]]))
before, after = table.ids[places], read[places]
hidden, same = after == tokenizer.token_to_id("[MASK]"), after == before
share = {"[MASK]": hidden.mean(), "as it was": same.mean(), "a random word": (~hidden & ~same).mean()}
bars(share, title="of the chosen tokens")
words = int((table.ids >= 5).sum())  # 0 to 4 are special tokens
answer("masking", chosen=len(places) / words, words=words, share=share)

# %% [markdown]
# **Why.** Draws that hit the word itself add to “as it was”: the share is slightly above 10 % on average, by one in the size of the vocabulary.
#
# **Your turn**: BERT's masking for a list of words. Then: why not [MASK] for all chosen words? Measure how many of the words that a model can read
# are false, with 80/10/10 and with [MASK] for all. *(`masked`)* *(`false_share`)*


# %%
def masked(words: list[str], vocabulary: list[str], rng: random.Random) -> tuple[list[str], list[int]]:
    """The words as they are read, and the places that are asked for."""
    ...  # your turn


def false_share(words: list[str], read: list[str]) -> float:
    """Of the words in ``read`` that are not [MASK]: the share that is not the true one."""
    ...  # your turn


check("06", masked=masked)
check("06", false_share=false_share)

# %% [markdown]
# ## What it learns
#
# **Idea.** A BERT of two layers, from scratch. Its head gives a probability for each word of the vocabulary at each chosen place; the loss is that of a classifier with so many classes.
# We compare with a baseline that always predicts the most frequent word. Facts are asked for separately: a
# model can know what kind of word must be somewhere, and not which.
#
# **Before you run**: which will it learn first, that a country follows “of”, or which country?

# %%
settings = dict(tokenizer="word", min_count=1, max_length=48, d_model=64, num_layers=2, num_heads=2, d_ff=128, max_positions=64,
                lr=3e-3, batch_tokens=1024, keep_best=False, seed=0, threads=1)  # fmt: skip
learner = gf.MaskedLM(epochs=budget(2, 20), **settings).fit(train, validation=held)
accuracy = [r["accuracy"] for r in learner.history_ if r["kind"] == "evaluation"]
counts = np.bincount(table.ids[table.ids >= 5])
frequent = counts.max() / counts.sum()
lines = {"unseen sentences": accuracy, "always the most frequent word": [frequent] * len(accuracy)}
plot(lines, xlabel="epoch", ylabel="masked words predicted")

# %%
known = {}
for form in ("{} is the capital of [MASK] .", "{} in [MASK] has a famous park ."):  # change me
    said = [learner.fill(form.format(COUNTRIES[country][0]), top=1)[0][0] for country in TEN]
    known[f"“{form.format('Paris')}”"] = sum(word == country.lower() for word, country in zip(said, TEN))
    print(form, said)
for text in ("[MASK] is the capital of France .", "The king and the [MASK] of Ana are wise ."):  # change me
    print(text, [(word, round(p, 2)) for word, p in learner.fill(text, top=3)])
answer("learned", first=accuracy[0], last=accuracy[-1], epochs=len(accuracy), frequent=frequent, known=known, ten=len(TEN), n=len(held))  # fmt: skip

# %% [markdown]
# **Why.** The form of a sentence is seen in every sentence, a fact only in a few. The loss falls fastest by learning what pays most often;
# facts come late and need capacity and repetition.
#
# **Your turn**: *perplexity* is e to the loss: among how many equally likely words the model seems to choose. Which accuracy and perplexity has a model that knows
# word frequencies only? *(`unigram`)*


# %%
def unigram(words: list[str]) -> tuple[float, float]:
    """Accuracy of always predicting the most frequent word, and perplexity of giving each word its share."""
    ...  # your turn


check("06", unigram=unigram)

# %% [markdown]
# ## Next sentence
#
# **Idea.** BERT's second task: does this segment follow that one? In half of the pairs the second segment is replaced by one of another
# text, and the model must tell which. Here two sentences belong together when they speak of one country. One of
# the four pairs of each country is held out: the model has read both of its sentences, never one after the other.
# Compare the loss with that of guessing. A model of this size may well learn the words and not the task; later
# models dropped it (Liu et al., 2019).
#
# ![Two segments in one sequence](../docs/_static/diagrams/next-sentence.svg)

# %%
rng = np.random.default_rng(0)
together, kept_out = [], []  # learned from, held out
for country, (capital, city, currency, _) in COUNTRIES.items():
    first = f"{capital} is the capital of {country} .", f"{city} in {country} has a famous park ."
    second = f"people in {country} pay with the {currency} .", f"the train to {city} leaves {capital} ."
    four = [f"{a} {b}" for a in first for b in second]
    kept_out += [four.pop(int(rng.integers(4)))] * budget(1, 5)  # with other strangers every time
    together += four * budget(1, 20)

# %% [markdown]
# **Before you run**: which loss has a model that only guesses between the two?

# %%
pairs = gf.MaskedLM(next_sentence=True, epochs=budget(1, 12), **settings).fit(together)
for name, some in (("the pairs learned from", together), ("pairs held out", kept_out)):
    found = pairs.judge(some)
    print(f"{name}: next sentence, loss {found['next_sentence_loss']:.3f}; masked words {found['accuracy']:.0%}")  # fmt: skip
print(f"loss of guessing: {np.log(2):.3f}")
if file := recorded(
    "recipe-europe-mlm"
):  # an easier task: which second half of a sentence belongs to which first
    found = file["runs"][0]["masked"]
    print(f"halves of unseen sentences: loss {found['next_sentence_loss']:.3f}; masked words {found['accuracy']:.0%}")  # fmt: skip

# %% [markdown]
# **Why.** Guessing between two classes costs ln 2 = 0.693. To be below that on pairs held out, the model has to compare the countries of two segments,
# for which it has no reason as long as the words alone lower the loss.
#
# **Your turn**: make one sequence of two sentences, as in the diagram. *(`segments`)*


# %%
def segments(first: list[str], second: list[str]) -> tuple[list[str], list[int]]:
    """The tokens with [CLS] and [SEP], and for each the number of its segment, 0 or 1."""
    ...  # your turn


check("06", segments=segments)

# %% [markdown]
# ## Does it help when labels are few?
#
# **Idea.** The same encoder learns a classification from a few labels: from random weights (a pre-training at a rate of 0, and without the
# start that looks at neighboring words, which `MaskedLM` gives its first heads), and from pre-trained ones. The texts are of the same kind, the labels are new. A point is the
# mean of five trainings of a few hundred steps, each with its own labels; one alone may lie 10 points off by luck. The pre-training is the same for all.
#
# **Before you run**: with how many labels will the curves meet?

# %%
folder, plain = Path(tempfile.mkdtemp()), europe_splits(budget(600, 8_000))
(train_x, train_y), (test_x, test_y) = plain["train"], plain["test"]
gf.MaskedLM(epochs=1, **settings | {"lr": 0.0, "neighbours": False}).fit(train_x).save(folder / "from scratch")  # fmt: skip
gf.MaskedLM(epochs=budget(2, 15), **settings).fit(train_x).save(folder / "pre-trained")


def right(start: str, n: int, seed: int) -> np.ndarray:
    """1.0 where a classifier that has learned n labels is right and 0.0 where it is wrong, [m]."""
    rows = np.random.default_rng(seed).permutation(len(train_x))[:n]
    clf = gf.TextClassifier(str(folder / start), epochs=max(3, budget(3, 3_000 // n)), lr=1e-3, batch_size=16, max_length=48, seed=seed, threads=1)  # fmt: skip
    clf.fit([train_x[i] for i in rows], [train_y[i] for i in rows])
    return 1.0 * (clf.predict(test_x) == np.array(test_y))


# %%
few = budget((20,), (20, 60, 200, 600))  # change me
seeds = budget((0,), range(5))
starts = ("from scratch", "pre-trained")
hits = {start: [np.array([right(start, n, s) for s in seeds]) for n in few] for start in starts}  # [seeds, m] for each n  # fmt: skip
lines = {start: np.array([h.mean(1) for h in found]).T for start, found in hits.items()}
plot(lines, x=few, xscale="log", xlabel="labels", ylabel="test accuracy")
scratch, trained = ({f"{n} labels": h.mean() for n, h in zip(few, hits[start])} for start in starts)
gains = {f"{n} labels": b - a for n, a, b in zip(few, *hits.values())}
answer("transfer", scratch=scratch, trained=trained, gains=gains, seeds=len(seeds), n=len(test_y))

# %% [markdown]
# **Why.** The pre-trained rows already put words of one kind near each other, so a label of one country says something about the others. With enough labels the
# classifier learns that by itself, and both reach the top. An interval that holds 0 has shown no difference: the seeds differ too much.
#
# **Your turn**: a random draw of 20 labels may hold 14 of one class. Draw as many of each. *(`drawn_evenly`)*


# %%
def drawn_evenly(labels: list[str], each: int, seed: int) -> list[int]:
    """Places of ``each`` random examples of every class; another seed gives others."""
    ...  # your turn


check("06", drawn_evenly=drawn_evenly)

# %% [markdown]
# ## Longer pre-trainings, and what they gave
#
# **Idea.** Read from result files. First the share of masked words that are predicted rightly in unseen text: sentences about countries,
# Vietnamese reviews, film reviews. Then labeled reviews: a BERT with such weights (`ntc-bert`, `imdb-from-mlm`) compared with an
# encoder from scratch. The two of a pair also differ in size, length and tokens, and some have one seed or two: what pre-training adds
# cannot be read from them.
#
# **Before you run**: in which of the texts are words easiest to predict?

# %%
bars(measured("europe-mlm", "ntc-mlm", "imdb-mlm", "imdb-mlm-minilm"), title="masked words predicted")
bars(measured("ntc-bert", "ntc-encoder", "imdb-from-mlm", "imdb-encoder-small-best"), title="test accuracy")

# %% [markdown]
# **Why.** Generated sentences follow few patterns. In real text many words fit a gap, and no model can know which one was written.
#
# Where the library does this: [tasks/masked_lm/estimator.py](../src/glassformer/tasks/masked_lm/estimator.py), [train/objectives.py](../src/glassformer/train/objectives.py).
