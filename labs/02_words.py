# %% [markdown]
# # 2. From words to vectors to a mini-Transformer
#
# What you will see: word vectors learned from sentences about countries, what each setting does to them, and a
# one-layer Transformer on top of them. The corpus is generated, so that we know what is in it; everything here runs on the embedded data.
#
# Where the library does this: [data/corpus.py](../src/glassformer/data/corpus.py) (the sentences), [models/skipgram.py](../src/glassformer/models/skipgram.py) (the model to read),
# [train/negative_sampling.py](../src/glassformer/train/negative_sampling.py) (the same loss, compiled).

# %%
from collections import Counter

import numpy as np
import torch
from lab import BLUE, GREY, RED, accuracy_curve, answer, bars, budget, chance, maps, measured, plt, span

import glassformer as gf
from glassformer.data.corpus import COUNTRIES, TEN, countries_sentences, europe_splits, hard_negatives
from glassformer.evaluate.vectors import judge_vectors
from glassformer.models.skipgram import SkipGram, SkipGramBatch, noise_distribution

count = budget(2_000, 20_000)  # change me: sentences
seeds = budget((0,), (0, 1, 2))  # change me
sentences = [s.lower().strip(" .").split() for s in countries_sentences(count)]
print(
    f"{count} sentences, {len({tuple(s) for s in sentences})} distinct, {len({w for s in sentences for w in s})} words"
)
print(*(" ".join(s) for s in sentences[:3]), sep="\n")

# %% [markdown]
# ## The window
#
# Skip-gram learns from pairs: a center and a word at most `window` places away. A narrow window is said to pair a word with
# its grammar, a wide one with its topic. Count both, and see how far that holds for sentences as short as these.
#
# ![A center word, its window and its negatives](../docs/_static/diagrams/skip-gram.svg)
#
# **Before you run**: how many contexts has a word in the middle of a long sentence with window 5? Why is the mean below that?


# %%
def pairs_of(lines: list[list[str]], window: int) -> list[tuple[str, str]]:
    """Every (centre, context) within the window."""
    return [
        (line[i], line[j])
        for line in lines
        for i in range(len(line))
        for j in range(max(0, i - window), min(len(line), i + window + 1))
        if i != j
    ]


capital = {name.lower(): facts[0].lower() for name, facts in COUNTRIES.items() if name in TEN}
rows = {}
for window in (1, 2, 5, 10):  # change me
    pairs = pairs_of(sentences[:2000], window)
    kinds = Counter(
        "function word" if b in {"the", "of", "in", "is", "a", "and", "from"} else "other" for _, b in pairs
    )
    known = sum(capital.get(a) == b for a, b in pairs)
    rows[window] = (len(pairs) / sum(map(len, sentences[:2000])), kinds["function word"] / len(pairs), known)
    print(f"window {window:2d}: {rows[window][0]:.1f} pairs a word, {rows[window][1]:.0%} with a function word, "
          f"{known} pairs of a country and its capital")  # fmt: skip
figure, axes = plt.subplots(1, 2, figsize=(8, 2.6))
axes[0].bar([str(w) for w in rows], [r[0] for r in rows.values()], color=BLUE)
axes[0].set(xlabel="window", title="pairs a word")
axes[1].bar([str(w) for w in rows], [r[2] for r in rows.values()], color=RED)
axes[1].set(xlabel="window", title="pairs (country, its capital)")
plt.show()
answer(
    "window",
    f"From window 1 to 10 a word goes from {rows[1][0]:.1f} to {rows[10][0]:.1f} pairs; pairs of a country and its capital from "
    f"{rows[1][2]} to {rows[10][2]}; function words from {rows[1][1]:.0%} to {rows[10][1]:.0%} of the contexts (counted in {len(sentences[:2000]):,} "
    "sentences).",
)

# %% [markdown]
# **Why.** A word at the edge of a sentence has fewer words around it, and these sentences are short: a window of 10 reaches beyond most of them. A
# wider window adds pairs of topic words, which is what makes a country and its capital near each other.

# %% [markdown]
# ## Negative sampling
#
# The loss of a pair is -log σ(v·u): v is the center's vector, u the context's, and σ(x) = 1 / (1 + e⁻ˣ) turns their product
# into a probability. On its own it has a cheap way out: make all vectors alike and long. k words drawn at random push back,
# each drawn in proportion to how often it occurs, to the power 0.75: the whole loss is -log σ(v·u) - Σᵢ log σ(-v·uᵢ). The true word
# is pulled near, the drawn ones are pushed away. Each training below is the same but for k; the mean cosine of center vectors is 1 when they have collapsed.
#
# **Before you run**: which loss reaches a model without negatives, and what do its vectors look like then?

# %%
words = sorted({w for s in sentences for w in s})
number = {w: i for i, w in enumerate(words)}
counts = np.bincount([number[w] for s in sentences for w in s], minlength=len(words))
noise = torch.from_numpy(noise_distribution(counts))


def numbered(pairs: list[tuple[str, str]]) -> torch.Tensor:
    return torch.tensor([(number[a], number[b]) for a, b in pairs])


def batch_of(pairs: torch.Tensor, k: int, generator: torch.Generator) -> SkipGramBatch:
    drawn = torch.multinomial(noise, max(1, len(pairs) * k), replacement=True, generator=generator)
    negatives = drawn.view(len(pairs), k) if k else torch.full((len(pairs), 1), -1)
    return SkipGramBatch(pairs[:, 0], pairs[:, 1:], negatives)


def train(pairs, *, k=5, lr=1e-2, dim=50, epochs=3, decay=0.0, held=None, seed=0):
    """A skip-gram model and the loss a pair: of training after each epoch, and on pairs held out."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, losses, judged, steps = SkipGram(len(words), dim), [], [], []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        total = 0.0
        for rows in pairs[torch.randperm(len(pairs), generator=generator)].split(1024):
            loss = model(batch_of(rows, k, generator)).mean()
            batch = model.centres(rows[:, 0]), model.contexts(rows[:, 1])
            penalty = decay * sum(v.square().sum(1).mean() for v in batch)
            optimizer.zero_grad()
            (loss + penalty).backward()
            optimizer.step()
            total += loss.item() * len(rows)
            steps.append(loss.item())
        losses.append(total / len(pairs))
        if held is not None:
            with torch.no_grad():
                fixed = torch.Generator().manual_seed(1)
                judged.append(model(batch_of(held, k, fixed)).mean().item())
    return model, losses, judged, steps


def alikeness(model: SkipGram) -> float:
    units = torch.nn.functional.normalize(model.centres.weight.detach(), dim=1)
    return float((units @ units.T).mean())


some = numbered(pairs_of(sentences[: budget(500, 4000)], 5))
collapse, spread, size = {}, {}, {}
models = {k: train(some, k=k, epochs=budget(1, 3))[0] for k in (0, 1, 5, 20)}  # change me
collapse = {f"k = {k}": alikeness(model) for k, model in models.items()}
model, rows = models[5], some[:256]
for k in (1, 5, 20):
    gradients = []
    for draw in range(20):  # what the negatives alone do to the centres, under other draws
        batch = batch_of(rows, k, torch.Generator().manual_seed(draw))
        model.zero_grad()
        model(
            SkipGramBatch(batch.centres, torch.full_like(batch.positives, -1), batch.negatives)
        ).sum().backward()
        gradients.append(model.centres.weight.grad.clone())
    stack = torch.stack(gradients)
    size[k] = float(stack.mean(0).norm())
    spread[k] = float((stack - stack.mean(0)).norm(dim=(1, 2)).mean()) / size[k]
figure, axes = plt.subplots(1, 2, figsize=(8, 2.4))
bars(axes[0], collapse, title="mean cosine of all pairs of words")
bars(
    axes[1],
    {f"k = {k}": s for k, s in spread.items()},
    colour=RED,
    title="negatives: noise of the gradient / its size",
)
plt.show()
answer(
    "negatives",
    f"Without negatives the vectors collapse: mean cosine {collapse['k = 0']:.2f}, with k = 5 {collapse['k = 5']:.2f}. From k = 1 to "
    f"k = 20 the negatives' push on the centres grows {size[20] / size[1]:.1f} times, and the part of it that the draw decides goes "
    f"from {spread[1]:.2f} to {spread[20]:.2f} of its size (one training for each k; 20 draws).",
)

# %% [markdown]
# **Why.** Without negatives -log σ(v·u) is smallest when all products are large, which one direction for all vectors achieves. Each negative asks for a
# small product with a random word, and a sum over more of them has a larger mean and, relative to it, less noise.

# %% [markdown]
# ## Norms, and a loss that stops falling
#
# Center vectors begin at random between ±0.5/dim, context vectors at 0. Here the library's class in its readable form (Adam,
# with the settings of a published practical: 2 positives and 5 negatives a center, dim 50, batches of 256, 1e-3) at two rates.

# %%
texts = [" ".join(s) for s in sentences]
settings = dict(optimizer="adam", dim=50, window=5, positives=2, negative=5, batch_size=256, min_count=1, subsample=0.0,
                threads=1, epochs=budget(1, 3))  # fmt: skip
fits = {lr: gf.Word2Vec(lr=lr, **settings).fit(texts) for lr in (1e-3, 1e-2)}  # change me
curves = {}
figure, ax = plt.subplots(figsize=(6, 2.8))
for lr, colour in zip(fits, (BLUE, RED)):
    loss = np.array([r["loss"] for r in fits[lr].history_ if r["kind"] == "step"])
    width = max(1, len(loss) // 60)
    curves[lr] = np.convolve(loss, np.ones(width) / width, "valid")
    ax.plot(curves[lr], color=colour, label=f"lr {lr}")
ax.set(xlabel="step", ylabel="loss of a centre")
ax.legend(frameon=False)
plt.show()
slow, fast = fits
norms = fits[fast].norms_
answer("norms", f"Mean norm {norms['before']['mean']:.3f} before and {norms['after']['mean']:.2f} after "
       f"(from {norms['after']['min']:.2f} to {norms['after']['max']:.2f}, {len(fits[fast].words_)} words, one training) at lr {fast}.")  # fmt: skip
curve = curves[fast]
half, last = curve[len(curve) // 2], curve[-1]
answer(
    "saturation",
    f"At lr {fast} the loss goes from {curve[0]:.2f} to {half:.2f} in the first half of the steps and is {last:.2f} at the end: "
    f"{'all' if half <= last else f'{(curve[0] - half) / (curve[0] - last):.0%}'} of the fall is in the first half. It stays above 0: which of many contexts "
    "a word will have cannot be known (one training).",
)
goal = curve.min() + 0.1 * (curve[0] - curve.min())


def reached(line: np.ndarray) -> str:
    there = np.flatnonzero(line <= goal)
    steps = len(line) + width - 1  # the line is a running mean over `width` steps
    return f"after {there[0] + width} of {steps} steps" if len(there) else f"not within {steps} steps"


answer(
    "rates",
    f"90 % of the fall (loss {goal:.2f}): lr {fast} {reached(curves[fast])}, lr {slow} {reached(curves[slow])} (one training "
    "each).",
)

# %% [markdown]
# **Why.** The vectors begin near 0, where every product is 0 and every probability 1/2; to say anything they must grow. The loss cannot reach 0,
# because the same word has many contexts: what is left is the uncertainty of the language itself.

# %% [markdown]
# ## Over-fitting, and a simple regularizer
#
# Word vectors over-fit when sentences are few: the loss on pairs of unseen sentences turns up while that of training
# falls. Unseen is the sentence; most of its pairs of words occur in other sentences too. The penalty is λ(|v|² + |u|²) of each pair's vectors.

# %%
few = numbered(pairs_of(sentences[:200], 5))  # change me
known = set(map(tuple, sentences[:200]))  # the corpus repeats sentences
others = [list(s) for s in dict.fromkeys(map(tuple, sentences[200:])) if s not in known]
unseen = numbered(pairs_of(others[-500:], 5))
epochs = budget(8, 60)
figure, ax = plt.subplots(figsize=(6, 3))
ends, last = {}, {}
for decay, colour in ((0.0, RED), (0.01, BLUE)):
    found = [train(few, epochs=epochs, lr=1e-2, decay=decay, held=unseen, seed=s)[1:3] for s in seeds]
    losses, held = np.mean(found, 0)
    ax.plot(losses, color=colour, linestyle=":", label=f"training, λ = {decay}")
    ax.plot(held, color=colour, label=f"unseen, λ = {decay}")
    ends[decay] = (losses[-1], held[-1], min(held), int(np.argmin(held)) + 1)
    last[decay] = [run[1][-1] for run in found]
ax.set(xlabel="epoch over 200 sentences", ylabel="loss of a pair")
ax.legend(frameon=False)
plt.show()
(t0, h0, b0, e0), (t1, h1, b1, e1) = ends[0.0], ends[0.01]
answer(
    "vector-overfitting",
    f"On 200 sentences the unseen loss is lowest in epoch {e0} ({b0:.2f}) and {span(last[0.0], '{:.2f}')} after {epochs}, while training falls "
    f"to {t0:.2f}. With λ = 0.01 it ends at {span(last[0.01], '{:.2f}')} (training {t1:.2f}); stopping at epoch {e0} gives {b0:.2f}. Means of "
    f"{len(seeds)} seeds, pairs of {len(others[-500:])} unseen sentences.",
)

# %% [markdown]
# **Why.** A few sentences contain few of the pairs that are possible; the model learns that the others never occur. The penalty makes large products
# expensive, and stopping early does not let them grow.

# %% [markdown]
# ## Which metric evaluates the vectors
#
# The loss says how well contexts are predicted, and not what the vectors are for. `add_contexts` changes nothing in the
# training, hence nothing in the loss: it adds a word's two vectors at the end. An *analogy* asks: France is to Paris as Japan is to
# what? The answer is the word whose vector has the largest cosine (the product of two vectors, divided by both lengths) with paris - france + japan; the three words of the question do not count.

# %%
epochs = budget(6, 30)
judged, solved = {}, {}
for name, added in (("centre vectors", False), ("centre + context", True)):  # change me
    runs = []
    for seed in seeds:
        vectors = gf.Word2Vec(
            dim=50,
            window=5,
            negative=15,
            min_count=1,
            add_contexts=added,
            epochs=epochs,
            seed=seed,
            threads=1,
        )
        vectors.fit(texts)
        runs.append(
            judge_vectors(vectors.words_, vectors.vectors_, ["countries"], None)["countries"]["sections"]
        )
    found = runs[-1]
    solved[name] = [r["country : capital"]["correct"] / r["country : capital"]["known"] for r in runs]
    judged[name] = {s: r["correct"] / r["known"] for s, r in found.items()}, vectors.history_[-1]["loss"]
    print(
        name,
        "loss",
        round(judged[name][1], 4),
        {s: f"{r['correct']} of {r['known']}" for s, r in found.items()},
    )
print("king - man + woman:", vectors.analogy("king", "man", "woman", 3))
print("paris:", vectors.most_similar("paris", 3))
figure, axes = plt.subplots(1, 2, figsize=(9, 2.4), sharex=True)
for ax, (name, (scores, loss)), colour in zip(axes, judged.items(), (GREY, BLUE)):
    bars(ax, scores, colour=colour, title=f"{name}: loss {loss:.3f}")
plt.show()
(a, la), (b, lb) = judged.values()
answer(
    "vector-metric",
    f"A test on the task that they are for, here analogies. The same training, hence the same loss ({la:.3f} and {lb:.3f}), answers "
    f"{span(solved['centre vectors'], '{:.0%}')} of {found['country : capital']['known']} capitals by centre vectors and "
    f"{span(solved['centre + context'], '{:.0%}')} by their sum with the context vectors ({len(seeds)} seeds). The loss is blind to that.",
)

# %% [markdown]
# **Why.** The loss depends on products of a center and a context vector, the analogy on cosines among the vectors that you keep. Two choices with the
# same loss can differ in these: choose by a test of the use.

# %% [markdown]
# ## The mini-Transformer, and the order of words
#
# A Transformer layer does two things. Attention ([lab 1](01_attention.py)) lets each row read the others; then a *feed-forward
# network* (a matrix, a function that bends the line such as ReLU or GELU, a matrix) changes each row by itself. Each result is added to what went in (a *residual*), and a
# *layer norm* brings a row to mean 0 and spread 1, so that many layers can be stacked. Before each sentence stands an added token
# [CLS], after it [SEP]; what the layer has made of the row of [CLS], times one more matrix (the *head*), gives a number for each label, its *logit*.
#
# ![A layer in its two orders](../docs/_static/diagrams/encoder-layer.svg)
#
# Here: one pre-norm layer (its norms stand before attention and before the feed-forward network), 2 heads, width 64, on word
# vectors of 50 numbers that one learned matrix brings to 64 and that are themselves *frozen*: training does not change them. Does the sentence name a European *country*? Paris next to
# Chile is a trap. Then a task in which only the order counts: is the first country of a trade European?
# Where the library does this: [models/text.py](../src/glassformer/models/text.py), `encoder_mini`; [word_table.py](../src/glassformer/tasks/word_table.py).

# %%
splits = europe_splits(budget(600, 6_000))
train_x, train_y = splits["train"]
traps = hard_negatives(budget(100, 1000))
scores = []
for seed in seeds:
    clf = gf.TextClassifier(
        "encoder-mini", vectors="word2vec", embedding_dim=50, freeze_vectors=True, max_length=128, tokenizer="word",
        min_count=1, epochs=budget(2, 4), lr=2e-3, batch_size=64, seed=seed, threads=1,
    )  # fmt: skip
    clf.fit(train_x, train_y, validation=splits["validation"])
    scores.append((clf.score(*splits["test"]), clf.score(traps, ["other"] * len(traps))))
accuracy, trapped = zip(*scores)
explanation = clf.explain("Paris is not the capital of Chile .", method="attention", maps=True)
maps(explanation.maps[0], explanation.tokens, ["head 1", "head 2"])
plt.show()
training, held = accuracy_curve(clf)
print("validation accuracy after each epoch:", [round(a, 3) for a in held])
answer(
    "mini",
    f"The country: {span(accuracy)} of {len(splits['test'][0])} unseen sentences are right, and {span(trapped)} of {len(traps)} "
    f"in which a European city, language or currency stands beside another country ({len(seeds)} seeds; by one training the true shares lie at "
    f"{chance(np.mean(accuracy), len(splits['test'][0]))} and {chance(np.mean(trapped), len(traps))}).",
)

# %%
rng = np.random.default_rng(0)
europe, others = ["France", "Germany", "Italy", "Spain"], ["Japan", "Kenya", "Peru", "India"]


def trade() -> tuple[str, str]:
    """A sentence with one European and one other country, and who of them sells."""
    a, b = rng.choice(europe), rng.choice(others)
    first = bool(rng.integers(2))
    seller, buyer = (a, b) if first else (b, a)
    goods = " and ".join(
        rng.choice(["tea", "salt", "wine", "wool", "rice", "toys"], rng.integers(1, 4), replace=False)
    )
    return f"{seller} sells {goods} to {buyer}", "europe" if first else "other"


lines = [trade() for _ in range(budget(300, 1500))]
cut = len(lines) * 2 // 3
arms = {}
for positions in ("none", "sinusoidal", "learned"):  # change me
    arms[positions] = []
    for seed in seeds:
        model = gf.TextClassifier("encoder-mini", positions=positions, max_length=16, tokenizer="word", min_count=1, lr=3e-3,
                                  epochs=budget(2, 6), batch_size=32, seed=seed, threads=1, dropout=0.0)  # fmt: skip
        model.fit(*zip(*lines[:cut]), validation=tuple(zip(*lines[cut:])))
        arms[positions].append(accuracy_curve(model)[1])
figure, ax = plt.subplots(figsize=(5, 2.6))
for name, runs in arms.items():
    ax.plot(range(1, len(runs[0]) + 1), np.mean(runs, 0), "o-", label=name)
ax.set(xlabel="epoch", ylabel="validation accuracy", ylim=(0.4, 1.02))
ax.legend(frameon=False)
plt.show()
answer(
    "positions",
    "Where the order decides, after the last epoch: "
    + ", ".join(f"{name} {span([run[-1] for run in runs])}" for name, runs in arms.items())
    + "; after the first: "
    + ", ".join(f"{name} {span([run[0] for run in runs])}" for name, runs in arms.items())
    + f" ({len(seeds)} seeds, {len(lines) - cut} unseen sentences). Without positions a Transformer sees a bag of words.",
)

# %% [markdown]
# ## Frozen against trained
#
# The mini-Transformer on all 20,000 sentences, read from result files (means over seeds): without word vectors (`europe`), with frozen
# ones and sinusoidal or learned positions, and with vectors that are trained further. On the right the word vectors by themselves,
# compiled with 15 negatives and in the readable form with Adam: the share of analogies that they answer.

# %%
full = measured("europe", "europe-frozen", "europe-frozen-learned", "europe-trained")
analogies = measured("countries-word2vec", "countries-word2vec-adam")
figure, axes = plt.subplots(1, 2, figsize=(9, 2), width_ratios=(3, 2))
bars(axes[0], full, form="{:.2%}", title="test accuracy")
bars(axes[1], analogies, form="{:.1%}", colour=RED, title="analogies answered")
plt.show()
if {"europe-frozen", "europe-trained"} <= full.keys():
    print(f"trained further less frozen: {full['europe-trained'] - full['europe-frozen']:+.2%}")
    if full["europe-frozen"] == full["europe-trained"] == 1:
        print("Both are at the top: this task is too easy to tell them apart.")

# %% [markdown]
# ## Exercises
#
# Write the function under the name in brackets; `from lab import check` and `check("02", unigram_noise=unigram_noise)` run its hidden test.
#
# 1. Write `unigram_noise(counts, power)`: the distribution of negatives. Which share has the most frequent word for powers 1,
#    0.75 and 0? *(`unigram_noise`)*
# 2. `analogy("paris", "france", "japan")` should be tokyo. Write it with numpy, the three words of the question excluded.
#    *(`analogy`)*
# 3. Label the sentences by whether a *city* of Europe is named (`EUROPEAN_CITIES` of `glassformer.data.corpus`), and train the
#    mini-Transformer on that. *(`names_city`)*
#
# Where the library does this: [vectors.py](../src/glassformer/tasks/word2vec/estimator.py), [evaluate/vectors.py](../src/glassformer/evaluate/vectors.py), [nn/positions.py](../src/glassformer/nn/positions.py).
