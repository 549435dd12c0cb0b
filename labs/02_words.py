# %% [markdown]
# # 2. From words to vectors to a mini-Transformer
#
# What you will see: word vectors learned from sentences about countries, what each setting does to them, and a
# one-layer Transformer on top of them. The corpus is generated, so that we know what is in it; everything here runs on the embedded data.
#
# Where the library does this: [data/corpus.py](../src/glassformer/data/corpus.py) (the sentences), [models/skipgram.py](../src/glassformer/models/skipgram.py) (the model to read),
# [train/negative_sampling.py](../src/glassformer/train/negative_sampling.py) (the same loss, compiled).

# %%
import numpy as np
import torch
from lab import accuracy_curve, answer, bars, budget, chance, check, maps, measured, plot
from torch import Tensor

import glassformer as gf
from glassformer.data.corpus import COUNTRIES, TEN, countries_sentences, europe_splits, hard_negatives
from glassformer.evaluate.vectors import evaluate_vectors
from glassformer.models.skipgram import SkipGram, SkipGramBatch, noise_distribution

# %%
torch.set_num_threads(1)
seeds = budget((0,), (0, 1, 2))  # change me
texts = [s.lower().strip(" .") for s in countries_sentences(budget(2_000, 20_000))]  # change me
sentences = [text.split() for text in texts]
words = sorted({w for s in sentences for w in s})
print(f"{len(texts)} sentences, {len(set(texts))} distinct, {len(words)} words", *texts[:3], sep="\n")

# %% [markdown]
# ## The window
#
# **Idea.** A word is known by the company it keeps. Skip-gram learns from pairs: a *center* and a word at most `window` places away, its *context*.
# Each word has two vectors, one as a center and one as a context, and the pair's product should be large.
# A narrow window is said to pair a word with its grammar, a wide one with its topic.
# We count both, and see how far that holds for sentences as short as these.
#
# ![A center word, its window and its negatives](../docs/_static/diagrams/skip-gram.svg)


# %%
def pairs_of(line: list[str], window: int) -> list[tuple[str, str]]:
    """Every (center, context) within the window."""
    return [
        (line[i], line[j])
        for i in range(len(line))
        for j in range(max(0, i - window), min(len(line), i + window + 1))
        if i != j
    ]


# %% [markdown]
# **Before you run**: how many contexts has a word in the middle of a long sentence with window 5? Why is the mean below that?

# %%
some = sentences[:2000]
capitals = {(name.lower(), facts[0].lower()) for name, facts in COUNTRIES.items() if name in TEN}
FUNCTION = {"the", "of", "in", "is", "a", "and", "from"}
windows = (1, 2, 5, 10)  # change me
pairs = {f"window {n}": [pair for line in some for pair in pairs_of(line, n)] for n in windows}
per_word = {name: len(p) / sum(map(len, some)) for name, p in pairs.items()}
known = {name: sum(pair in capitals for pair in p) for name, p in pairs.items()}
grammar = {name: np.mean([b in FUNCTION for _, b in p]) for name, p in pairs.items()}
bars(per_word, form="{:.1f}", title="pairs per word")
bars(known, form="{:.0f}", title="pairs (country, its capital)")
answer("window", per_word=per_word, known=known, grammar=grammar, count=len(some))

# %% [markdown]
# **Why.** A word at the edge of a sentence has fewer words around it, and these sentences are short: a window of 10 reaches beyond most of them. A
# wider window adds pairs of topic words, which is what makes a country and its capital near each other.
#
# **Your turn**: the number of pairs of a sentence, without listing them. *(`pairs_in`)*


# %%
def pairs_in(length: int, window: int) -> int:
    """How many (center, context) pairs has a sentence of ``length`` words?"""
    ...  # your turn


check("02", pairs_in=pairs_in)

# %% [markdown]
# ## Negative sampling
#
# **Idea.** The loss of a pair is -log σ(v·u): v is the center's vector, u the context's, and σ(x) = 1 / (1 + e⁻ˣ) turns their product
# into a probability. On its own it has a cheap way out: make all vectors alike and long. k words drawn at random push back,
# each drawn in proportion to how often it occurs, to the power 0.75: the whole loss is -log σ(v·u) - Σᵢ log σ(-v·uᵢ). The true word
# is pulled near, the drawn ones are pushed away. The first cell draws a batch, the second trains; `decay` is for later.

# %%
number = {w: i for i, w in enumerate(words)}
noise = torch.from_numpy(noise_distribution(np.bincount([number[w] for s in sentences for w in s])))


def numbered(lines: list[list[str]], window: int = 5) -> Tensor:  # [n, 2]
    return torch.tensor([(number[a], number[b]) for line in lines for a, b in pairs_of(line, window)])


def batch_of(pairs: Tensor, k: int) -> SkipGramBatch:
    """Pairs with k drawn words each; -1 stands for none."""
    drawn = torch.multinomial(noise, max(1, len(pairs) * k), replacement=True)
    negatives = drawn.view(len(pairs), k) if k else torch.full((len(pairs), 1), -1)
    return SkipGramBatch(pairs[:, 0], pairs[:, 1:], negatives)


# %%
def step(model: SkipGram, optimizer, rows: Tensor, k: int, decay: float) -> float:
    """One update; returns the mean loss of a pair. ``decay`` penalizes the squared length of the vectors."""
    loss = model(batch_of(rows, k)).mean()
    penalty = sum(v.square().sum(1).mean() for v in (model.centres(rows[:, 0]), model.contexts(rows[:, 1])))
    optimizer.zero_grad()
    (loss + decay * penalty).backward()
    optimizer.step()
    return loss.item()


# %%
def train(pairs: Tensor, *, k=5, epochs=3, decay=0.0, seed=0, after=lambda model: None):
    """A skip-gram model and the loss of each epoch; ``after`` is called after each."""
    torch.manual_seed(seed)
    model, losses = SkipGram(len(words), 50), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # change me
    for _ in range(epochs):
        parts = pairs[torch.randperm(len(pairs))].split(1024)
        losses.append(float(np.mean([step(model, optimizer, rows, k, decay) for rows in parts])))
        after(model)
    return model, losses


# %% [markdown]
# **Before you run**: the trainings differ in k alone. What do the vectors look like without negatives, and how does the push of the negatives change with k?


# %%
def alikeness(model: SkipGram) -> float:
    """The mean cosine of all pairs of center vectors; 1: they have collapsed."""
    units = torch.nn.functional.normalize(model.centres.weight.detach(), dim=1)
    return float((units @ units.T).mean())


def push(model: SkipGram, rows: Tensor, k: int, draw: int) -> Tensor:
    """The gradient of the center vectors that the negatives alone make, in one draw."""
    torch.manual_seed(draw)
    model.zero_grad()
    model(SkipGramBatch(rows[:, 0], torch.full((len(rows), 1), -1), batch_of(rows, k).negatives)).sum().backward()  # fmt: skip
    return model.centres.weight.grad.clone()


# %%
learned = numbered(sentences[: budget(500, 4000)])
models = {k: train(learned, k=k, epochs=budget(1, 3))[0] for k in (0, 1, 5, 20)}  # change me
collapse = {f"k = {k}": alikeness(model) for k, model in models.items()}
size, spread = {}, {}
for k in (1, 5, 20):
    draws = torch.stack([push(models[5], learned[:256], k, draw) for draw in range(20)])
    size[f"k = {k}"] = float(draws.mean(0).norm())
    spread[f"k = {k}"] = float((draws - draws.mean(0)).norm(dim=(1, 2)).mean()) / size[f"k = {k}"]
bars(collapse, form="{:.2f}", title="mean cosine of all pairs of words")
bars(spread, form="{:.2f}", title="negatives: noise of the gradient / its size")
answer("negatives", collapse=collapse, grows=size["k = 20"] / size["k = 1"], spread=spread)

# %% [markdown]
# **Why.** Without negatives -log σ(v·u) is smallest when all products are large, which one direction for all vectors achieves. Each negative asks for a
# small product with a random word, and a sum over more of them has a larger mean and, relative to it, less noise.
#
# **Your turn**: the loss of one pair, and the distribution that the negatives are drawn from. Which share has the most frequent word for powers 1,
# 0.75 and 0? *(`pair_loss`)* *(`unigram_noise`)*


# %%
def pair_loss(v: Tensor, u: Tensor, negatives: Tensor) -> Tensor:
    """[D], [D] and [k, D] -> a single number."""
    ...  # your turn


def unigram_noise(counts: np.ndarray, power: float) -> np.ndarray:
    """[V] -> probabilities [V]."""
    ...  # your turn


check("02", pair_loss=pair_loss)
check("02", unigram_noise=unigram_noise)

# %% [markdown]
# ## Norms, and a loss that stops falling
#
# **Idea.** Center vectors begin at random between ±0.5/dim, context vectors at 0: every product is near 0 and every probability near 1/2.
# To predict anything the vectors must grow. The *learning rate* says how far each step goes. A loss that stops falling is *saturated*; it need not be 0 then.
# Here is the library's class in its readable form (Adam,
# with the settings of a published practical: 2 positives and 5 negatives for each center, dim 50, batches of 256, 1e-3) at two rates.
#
# **Before you run**: with 7 terms in the loss and every probability 1/2, where does the curve begin? Can it reach 0?

# %%
settings = dict(optimizer="adam", dim=50, window=5, positives=2, negative=5, batch_size=256, min_count=1, subsample=0.0,
                threads=1, epochs=budget(1, 3))  # fmt: skip
slow, fast = fits = [gf.Word2Vec(lr=lr, **settings).fit(texts) for lr in (1e-3, 1e-2)]  # change me
curves = {f"lr {w.lr}": [r["loss"] for r in w.history_ if r["kind"] == "step"] for w in fits}
plot(curves, mean_over=max(1, len(curves[f"lr {fast.lr}"]) // 60), xlabel="step", ylabel="loss of a center")

# %%
smooth = {name: np.convolve(loss, np.ones(20) / 20, "valid") for name, loss in curves.items()}
curve = smooth[f"lr {fast.lr}"]
goal = curve.min() + 0.1 * (curve[0] - curve.min())
reached = {name: next((i + 20 for i, x in enumerate(line) if x <= goal), None) for name, line in smooth.items()}  # fmt: skip
norms = {when: {name: found[name] for name in ("min", "mean", "max")} for when, found in fast.norms_.items()}
answer("norms", before=norms["before"], after=norms["after"], lr=fast.lr)
answer("saturation", lr=fast.lr, first=curve[0], half=curve[len(curve) // 2], last=curve[-1])
answer("rates", goal=goal, reached=reached, total=len(curves[f"lr {slow.lr}"]))

# %% [markdown]
# **Why.** The loss cannot reach 0,
# because the same word has many contexts: what is left is the uncertainty of the language itself. A rate that is ten times smaller needs several times as many steps.
#
# ## Over-fitting, and a simple regularizer
#
# **Idea.** Word vectors over-fit when sentences are few: the loss on pairs of unseen sentences turns up while that of training
# falls. Unseen is the sentence; most of its pairs of words occur in other sentences too. A *regularizer* is a price on what over-fitting needs, here on long vectors:
# the penalty λ(|v|² + |u|²) of each pair is added to the loss. The cheaper regularizer is to stop where the unseen loss is lowest.
#
# **Before you run**: which of the four curves ends lowest, and which one turns?

# %%
few = numbered(sentences[:200])  # change me
known = set(texts[:200])  # the corpus repeats sentences
others = [text for text in dict.fromkeys(texts[200:]) if text not in known]
unseen = numbered([text.split() for text in others[-500:]])


def unseen_loss(model: SkipGram) -> float:
    """The mean loss on pairs of unseen sentences, always with the same negatives."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return model(batch_of(unseen, 5)).mean().item()


# %%
lines = {}
for decay in (0.0, 0.01):
    for seed in seeds:
        held = []
        _, losses = train(few, epochs=budget(8, 60), decay=decay, seed=seed, after=lambda m, h=held: h.append(unseen_loss(m)))  # fmt: skip
        lines.setdefault(f"training, λ = {decay}", []).append(losses)
        lines.setdefault(f"unseen, λ = {decay}", []).append(held)
plot(lines, xlabel="epoch over 200 sentences", ylabel="loss of a pair")
held = np.mean(lines["unseen, λ = 0.0"], 0)
last = {name: [run[-1] for run in runs] for name, runs in lines.items()}
answer("vector-overfitting", epoch=int(held.argmin()) + 1, lowest=held.min(), epochs=len(held), last=last, seeds=len(seeds))  # fmt: skip

# %% [markdown]
# **Why.** A few sentences contain few of the pairs that are possible; the model learns that the others never occur. The penalty makes large products
# expensive, and stopping early does not let them grow.
#
# **Your turn**: early stopping. You see the unseen losses one by one and stop when the best one is `patience` epochs old. *(`stopped_at`)*


# %%
def stopped_at(losses: list[float], patience: int) -> tuple[int, int]:
    """The epoch (from 1) at which you stop, and the epoch whose weights you keep."""
    ...  # your turn


check("02", stopped_at=stopped_at)

# %% [markdown]
# ## Which metric evaluates the vectors
#
# **Idea.** The loss says how well contexts are predicted, and not what the vectors are for. `add_contexts` changes nothing in the
# training, hence nothing in the loss: it adds a word's two vectors at the end. An *analogy* asks: France is to Paris as Japan is to
# what? The answer is the word whose vector has the largest cosine (the product of two vectors, divided by both lengths) with
# paris - france + japan; the three words of the question do not count.
#
# **Before you run**: will the sum of the two vectors be better or worse than the center vector alone?

# %%
solved, losses = {}, {}
for name, added in (("center vectors", False), ("center + context", True)):  # change me
    solved[name] = []
    for seed in seeds:
        vectors = gf.Word2Vec(dim=50, window=5, negative=15, min_count=1, add_contexts=added, epochs=budget(6, 30), seed=seed, threads=1)  # fmt: skip
        vectors.fit(texts)
        tests = evaluate_vectors(vectors.words_, vectors.vectors_, ["countries"], None)
        found = tests["countries"]["sections"]
        capital = found["country : capital"]
        solved[name].append(capital["correct"] / capital["known"])
    losses[name] = vectors.history_[-1]["loss"]
    bars({s: r["correct"] / r["known"] for s, r in found.items()}, title=f"analogies solved, {name}")
print("king - man + woman:", vectors.analogy("king", "man", "woman", 3))
print("paris:", vectors.most_similar("paris", 3))
answer("vector-metric", losses=losses, solved=solved, count=capital["known"], seeds=len(seeds))

# %% [markdown]
# **Why.** The loss depends on products of a center and a context vector, the analogy on cosines among the vectors that you keep. Two choices with the
# same loss can differ in these: choose by a test of the use.
#
# **Your turn**: `analogy(vectors, "paris", "france", "japan")` should be tokyo. *(`analogy`)*


# %%
def analogy(vectors: dict[str, np.ndarray], a: str, b: str, c: str) -> str:
    """The word nearest to a - b + c by cosine, other than these three."""
    ...  # your turn


check("02", analogy=analogy)

# %% [markdown]
# ## The mini-Transformer, and the order of words
#
# **Idea.** A Transformer layer does two things. Attention ([lab 1](01_attention.py)) lets each row read the others; then a *feed-forward
# network* (a matrix, a function that bends the line such as ReLU or GELU, a matrix) changes each row by itself. Each result is added to what went in (a *residual*), and a
# *layer norm* brings a row to mean 0 and spread 1, so that many layers can be stacked. Before each sentence stands an added token
# [CLS], after it [SEP]; what the layer has made of the row of [CLS], times one more matrix (the *head*), gives a number for each label, its *logit*.
#
# ![A layer in its two orders](../docs/_static/diagrams/encoder-layer.svg)
#
# Here: one pre-norm layer (its norms stand before attention and before the feed-forward network), 2 heads, width 64, on word
# vectors of 50 numbers that one learned matrix brings to 64 and that are themselves *frozen*: training does not change them. Does the sentence name a European *country*? Paris next to
# Chile is a trap. Then a task in which only the order counts: is the first country of a trade European?
# Where the library does this: [models/text.py](../src/glassformer/models/text.py), `encoder_mini`; [tasks/build.py](../src/glassformer/tasks/build.py).
#
# **Before you run**: does the model fall into the trap?

# %%
splits, traps = europe_splits(budget(600, 6_000)), hard_negatives(budget(100, 1000))
test_x, test_y = splits["test"]
common = dict(tokenizer="word", min_count=1, threads=1)
accuracy, trapped = [], []
for seed in seeds:
    clf = gf.TextClassifier("encoder-mini", vectors="word2vec", embedding_dim=50, freeze_vectors=True, max_length=128,
                            epochs=budget(2, 4), lr=2e-3, batch_size=64, seed=seed, **common)  # fmt: skip
    clf.fit(*splits["train"], validation=splits["validation"])
    accuracy.append(clf.score(test_x, test_y))
    trapped.append(clf.score(traps, ["other"] * len(traps)))
explanation = clf.explain("Paris is not the capital of Chile .", method="attention", maps=True)
maps(explanation.maps[0], explanation.tokens, ["head 1", "head 2"])
answer("mini", accuracy=accuracy, n=len(test_y), trapped=trapped, traps=len(traps), seeds=len(seeds),
       between=chance(np.mean(accuracy), len(test_y)))  # fmt: skip

# %%
rng = np.random.default_rng(0)
europe, others = ["France", "Germany", "Italy", "Spain"], ["Japan", "Kenya", "Peru", "India"]


def trade() -> tuple[str, str]:
    """A sentence in which one country sells to another, and whether the seller is in Europe."""
    first = bool(rng.integers(2))
    seller, buyer = (rng.choice(names) for names in ((europe, others) if first else (others, europe)))
    goods = rng.choice(["tea", "salt", "wine", "wool", "rice", "toys"], rng.integers(1, 4), replace=False)
    return f"{seller} sells {' and '.join(goods)} to {buyer}", "europe" if first else "other"


# %% [markdown]
# **Before you run**: which accuracy has a model without positions on this task?

# %%
trades = [trade() for _ in range(budget(300, 1500))]
cut = len(trades) * 2 // 3
runs = {}
for positions in ("none", "sinusoidal", "learned"):  # change me
    runs[positions] = []
    for seed in seeds:
        clf = gf.TextClassifier("encoder-mini", positions=positions, max_length=16, lr=3e-3, epochs=budget(2, 6), batch_size=32,
                                seed=seed, dropout=0.0, **common)  # fmt: skip
        clf.fit(*zip(*trades[:cut]), validation=tuple(zip(*trades[cut:])))
        runs[positions].append(accuracy_curve(clf)[1])
plot(runs, xlabel="epoch", ylabel="validation accuracy", ylim=(0.4, 1.02))
first, last = ({name: [run[i] for run in found] for name, found in runs.items()} for i in (0, -1))
answer("positions", first=first, last=last, seeds=len(seeds), n=len(trades) - cut)

# %% [markdown]
# **Why.** For the first task the words suffice: a country is a word. In the second both sentences of a pair have the same words, and without positions
# a Transformer sees a bag of words.
#
# **Your turn**: labels for another task: is a *city* of Europe named (`EUROPEAN_CITIES` of `glassformer.data.corpus`)? Train the mini-Transformer on them. *(`names_city`)*


# %%
def names_city(sentence: str) -> bool:
    """Whether any word of the sentence is a European city; “parish” names none."""
    ...  # your turn


check("02", names_city=names_city)

# %% [markdown]
# ## Frozen against trained
#
# **Idea.** The mini-Transformer on all 20,000 sentences, read from result files (means over seeds): without word vectors (`europe`), with frozen
# ones and sinusoidal or learned positions, and with vectors that are trained further. Then the word vectors by themselves,
# compiled with 15 negatives and in the readable form with Adam: the share of analogies that they solve.
#
# **Before you run**: does training the vectors further help?

# %%
full = measured("europe", "europe-frozen", "europe-frozen-learned", "europe-trained")
bars(full, form="{:.2%}", title="test accuracy")
bars(measured("countries-word2vec", "countries-word2vec-adam"), title="analogies solved")

# %% [markdown]
# **Why.** Where all are at or near 100 %, the task is too easy to tell them apart: a difference can only be seen below the top.
#
# Where the library does this: [vectors.py](../src/glassformer/tasks/word2vec/estimator.py), [evaluate/vectors.py](../src/glassformer/evaluate/vectors.py), [nn/positions.py](../src/glassformer/nn/positions.py).
