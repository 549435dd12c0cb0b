# %% [markdown]
# # 7. Text against images, and the price of attention
#
# What you will see: sentences and images in front of the same encoder, what attention does with each, what its cost
# is as the sequence grows, what brings the cost down, and how many examples either needs. All on embedded data.
#
# Where the library does this: [nn/encoder.py](../src/glassformer/nn/encoder.py), the one encoder;
# [nn/embed.py](../src/glassformer/nn/embed.py) and [nn/patches.py](../src/glassformer/nn/patches.py), the two doors to it.

# %%
import time

import numpy as np
import torch
from lab import answer, budget, check, digit_images, groups, plot, recorded, tfidf_accuracy
from scipy.stats import ttest_ind
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import glassformer as gf
from glassformer.data.corpus import europe_splits
from glassformer.explain.heads import attention_statistics
from glassformer.explain.methods import make_subject
from glassformer.nn import attend, attend_linear, attend_local
from glassformer.packing import Packing

# %%
torch.set_num_threads(1)
splits = europe_splits(budget(600, 4_000))
(train_x, train_y), (test_x, test_y) = splits["train"], splits["test"]
images, names, order = digit_images()  # uint8 [1797, 8, 8, 1]
train_p, test_p = order[: budget(200, 1_200)], order[1_400:]


def fit_text(n: int, **changes):
    settings = dict(max_length=64, tokenizer="word", min_count=1, epochs=budget(2, 4), lr=2e-3, batch_size=64, threads=1)  # fmt: skip
    return gf.TextClassifier("encoder-mini", **(settings | changes)).fit(train_x[:n], train_y[:n])


def fit_image(n: int, **changes):
    settings = dict(image_size=8, patch_size=2, channels=1, d_model=64, num_layers=2, num_heads=2, epochs=budget(2, 12),
                    lr=2e-3, batch_size=64, threads=1)  # fmt: skip
    return gf.ImageClassifier("vit-tiny", **(settings | changes)).fit(images[train_p[:n]], names[train_p[:n]].tolist())  # fmt: skip


# %% [markdown]
# ## What reaches the encoder
#
# **Idea.** A sentence is looked up, an image is multiplied: from there on both are rows [N, D] and a note of where each sequence
# lies. Sentences differ in length, images do not. The encoder does not know which of the two it reads: its layers are the same class
# with the same arithmetic. Only the first step and the head belong to the task.
#
# ![Tokens, ids and rows](../docs/_static/diagrams/text-to-rows.svg)
#
# ![Patches become rows](../docs/_static/diagrams/patches.svg)
#
# **Before you run**: which of the two has more parameters before its first layer, and why?

# %%
text, image = fit_text(len(train_x)), fit_image(len(train_p))
assert type(text.model_.encoder) is type(image.model_.encoder)


def embedding_share(clf) -> float:
    """The share of the parameters that lie before the first layer."""
    part, whole = clf.model_.embeddings.parameters(), clf.model_.parameters()
    return sum(p.numel() for p in part) / sum(p.numel() for p in whole)


tokens = [len(make_subject(text, t)) for t in test_x[: budget(20, 300)]]
patches = len(make_subject(image, images[0]))
groups({"sentences": {n: tokens.count(n) for n in range(5, 25)}}, title="sentences of each length", xlabel="tokens")  # fmt: skip
answer("modalities", shortest=min(tokens), longest=max(tokens), patches=patches, text=embedding_share(text),
       image=embedding_share(image), words=text.tokenizer_.get_vocab_size())  # fmt: skip

# %% [markdown]
# **Why.** A table needs a row for each word, a projection only one matrix for all patches: patches of any content share it. Behind the first layer
# nothing differs.
#
# **Your turn**: count the parameters of the two doors, positions left out. *(`door_parameters`)*


# %%
def door_parameters(d_model: int, words: int, patch: int, channels: int) -> tuple[int, int]:
    """Of a table of words, and of a matrix with bias for patches of patch × patch pixels."""
    ...  # your turn


check("07", door_parameters=door_parameters)

# %% [markdown]
# ## What attention does with each
#
# **Idea.** Three numbers describe how a model looks. *Entropy* 1 is an even look over the sequence, 0 one token. *Distance* is in places, as a share of an even look's distance.
# *Movement* is the share of the weight that is elsewhere than in the mean map of all inputs: what follows content and not
# places. The bars are of the two small models above; the answer is of models that have learned from 4,000 reviews and from
# 2,000 images of CIFAR-10, five seeds each, looked into on 100 held-out inputs by
# [a long run](../benchmarks/quality/lab_maps.py).
#
# **Before you run**: in which of the two does a word or patch look at fixed places, whatever is there?

# %%
usual = max(
    set(tokens), key=tokens.count
)  # one length, so that maps differ by what is read and not by how much
alike = [t for t, n in zip(test_x, tokens) if n == usual][:20]
small = {
    "text": attention_statistics([make_subject(text, t) for t in alike]),
    "images": attention_statistics([make_subject(image, images[i]) for i in test_p[:20]]),
}
groups(small, title="two small models, one seed")
if file := recorded("lab-maps"):
    found = {name: {n: file["kinds"][key][n] for n in small["text"]} for name, key in (("text", "text"), ("images", "pictures"))}  # fmt: skip
    moves = ttest_ind(*(kind["movement"]["by_seed"] for kind in found.values()), equal_var=False)
    answer("adaptation", **found, more=moves.confidence_interval(), p=moves.pvalue, seeds=len(file["seeds"]), n=file["inputs"])  # fmt: skip

# %% [markdown]
# **Why.** Words are where the sentence puts them, so a head for content must move with it. In images what a patch shows also depends on its place, since objects are often in the middle.
#
# **Your turn**: the second of the three numbers, for one map. *(`distance_share`)*


# %%
def distance_share(weights: Tensor) -> float:
    """[T, T] with rows that sum to 1: the mean distance |t - s| under the weights, divided by that of an even map."""
    ...  # your turn


check("07", distance_share=distance_share)

# %% [markdown]
# ## The price of length
#
# **Idea.** Every token meets every other: T² scores. Each line below handles the same number of tokens, in longer and longer sequences.
# *Local* attention sees 64 places on either side. *Linear* attention (Katharopoulos et al., 2020) takes φ(q)·φ(k), with φ(x) = elu(x) +
# 1 above 0, in the place of the exponential of q·k/√d_k, and divides by its sum over the keys: (φ(K)ᵀV) can then be computed first,
# and no map is ever made. Both compute something else than full attention, so a model must be trained with them.
#
# **Before you run**: how much more does a sequence of 8,192 tokens cost than eight of 1,024?

# %%
KINDS = {
    "every pair, as in the textbook": lambda q, k, v, p: attend(q, k, v, p, p, branch="explicit"),
    "every pair, the branch chosen here": lambda q, k, v, p: attend(q, k, v, p, p),
    "local (64)": lambda q, k, v, p: attend_local(q, k, v, p, 64),
    "linear": lambda q, k, v, p: attend_linear(q, k, v, p),
}  # change me


# %%
@torch.inference_mode()
def microseconds(kind, total: int, length: int) -> float:
    """Processor time per token: the best of three runs over ``total`` tokens in sequences of ``length``."""
    packing, (q, k, v) = Packing.uniform(total // length, length), torch.randn(3, total, 4, 32)
    spent = []
    for _ in range(budget(2, 4)):
        started = time.process_time()  # other work on the machine counts little
        kind(q, k, v, packing)
        spent.append(time.process_time() - started)
    return min(spent) * 1e6 / total


# %%
total = budget(1_024, 8_192)  # change me
lengths = [n for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if n <= total]
cost = {name: [microseconds(kind, total, length) for length in lengths] for name, kind in KINDS.items()}
plot(cost, x=lengths, xscale="log", yscale="log", xlabel="length of a sequence", ylabel="µs per token")
full = cost["every pair, as in the textbook"]
steps = (
    np.diff(np.log(full)) / np.log(2) + 1
)  # the exponent of the price of a sequence, from each length to its double
answer("cost", shortest=lengths[0], longest=lengths[-1], first=full[0], last=full[-1], early=steps[:3].mean(),
       late=steps[-2:].mean(), map=lengths[-1] ** 2)  # fmt: skip

# %%
encoder = {}
if file := recorded("cost-encoder"):  # a training step of a whole encoder, in the library's own benchmark
    for length, line in file["forward_backward"].items():
        encoder = {kind.replace(",", ""): found["median_ms"] for kind, found in line.items()}
        print(f"{length:>6} tokens:", {kind: f"{ms:.0f} ms" for kind, ms in encoder.items()})
answer("cheaper", length=lengths[-1], last={name: line[-1] for name, line in cost.items()}, encoder=encoder)

# %% [markdown]
# **Why.** Eight sequences of 1,024 have 8 · 1,024² pairs, one of 8,192 has eight times as many. Measured costs also include a linear part, which
# hides the square until the sequences are long.
#
# **Your turn**: count. The scores of full attention for a 224 px image at patch 16, 8 and 4, in 12 heads and 12 layers. The (query, key) pairs of
# local attention: when is it half of full attention? And linear attention is φ(Q)(φ(K)ᵀV) up to a division: show that the brackets may be moved,
# and count the products either way. *(`scores_of`)* *(`local_pairs`)* *(`both_orders`)*


# %%
def scores_of(size: int, patch: int, heads: int = 12, layers: int = 12) -> int:
    """With one [CLS]."""
    ...  # your turn


def local_pairs(length: int, window: int) -> int:
    """Each row sees itself and up to ``window`` rows on either side."""
    ...  # your turn


def both_orders(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int, int]:
    """[T, d], [T, d], [T, e] -> (QKᵀ)V and Q(KᵀV), and how many numbers are multiplied for either."""
    ...  # your turn


check("07", scores_of=scores_of)
check("07", local_pairs=local_pairs)
check("07", both_orders=both_orders)

# %% [markdown]
# ## Data hunger
#
# **Idea.** The same models on more and more examples, compared with a simple baseline that learns no features: for texts TF-IDF (the words of a text
# counted, rare ones weighted up) under logistic regression, for digits logistic regression on the pixels. A small set of labels is where a Transformer from scratch
# is weakest. Every point is the mean of several seeds, the band goes from the worst to the best.
#
# **Before you run**: at how many examples does each Transformer pass its baseline?

# %%
few_x, few_p = budget(([60, 400], [60, 200]), ([50, 200, 800, 2400], [50, 150, 450, 1200]))  # change me
seeds = range(budget(1, 3))
held, held_names = images[test_p], names[test_p]
flat = images.reshape(len(images), -1)


def score_text(n: int, seed: int) -> float:
    epochs = budget(1, max(3, 9_600 // n if n > 400 else 24))
    return fit_text(n, epochs=epochs, seed=seed).score(test_x, test_y)


def score_image(n: int, seed: int) -> float:
    epochs = budget(1, max(12, min(60, 12_000 // n)))
    return fit_image(n, epochs=epochs, seed=seed).score(held, held_names)


# %%
texts = {"Transformer": np.array([[score_text(n, s) for n in few_x] for s in seeds]),
         "TF-IDF": [tfidf_accuracy(train_x[:n], train_y[:n], test_x, test_y) for n in few_x]}  # fmt: skip
plot(texts, x=few_x, xscale="log", xlabel="sentences", ylabel="test accuracy")
pixels = LogisticRegression(C=0.01, max_iter=1000)
digits = {"ViT": np.array([[score_image(n, s) for n in few_p] for s in seeds]),
          "pixels": [pixels.fit(flat[train_p[:n]], names[train_p[:n]]).score(flat[test_p], held_names) for n in few_p]}  # fmt: skip
plot(digits, x=few_p, xscale="log", xlabel="digits", ylabel="test accuracy")
first, last = ({name: np.array(line)[..., i].tolist() for name, line in (texts | digits).items()} for i in (0, -1))  # fmt: skip
answer("hunger", few=(few_x[0], few_p[0]), many=(few_x[-1], few_p[-1]), first=first, last=last, seeds=len(seeds), n=len(test_y), m=len(test_p))  # fmt: skip

# %% [markdown]
# **Why.** Counted words need no learning of features, and each label teaches a weight directly. A Transformer first has to learn what a word or a patch
# is; where the task needs more than counting, it overtakes when examples suffice.
#
# **Your turn**: TF-IDF by hand: the count of a word in a text, times ln((1 + n) / (1 + d)) + 1, if d of n texts have the word. *(`tfidf`)*


# %%
def tfidf(word: str, text: list[str], texts: list[list[str]]) -> float:
    """Before the text's vector is brought to length 1."""
    ...  # your turn


check("07", tfidf=tfidf)

# %% [markdown]
# ## The first weights
#
# **Idea.** A layer begins with random weights. Their spread decides how large the signal and its gradient are after some layers; norms and
# residual sums take much of that back. The curve shows the small ViT of this lab on digits; the same is asked on
# CIFAR-10 and IMDb by [a long run](../benchmarks/quality/lab_questions.py), whose answer is below.
#
# **Before you run**: which is worse, a spread that is too small or one that is too large?

# %%
spreads = budget((0.02, 0.3), (0.002, 0.02, 0.08, 0.3, 1.0))  # change me
reached = np.array([[fit_image(400, init_std=spread, seed=s).score(held, held_names) for spread in spreads] for s in seeds])  # fmt: skip
plot({"ViT": reached}, x=spreads, xscale="log", xlabel="standard deviation of the first weights", ylabel="test accuracy")  # fmt: skip
answer("initial", reached=dict(zip(spreads, reached.T.tolist())), seeds=len(seeds), n=len(test_p))

# %% [markdown]
# **Why.** Weights near 0 give all inputs the same rows, and the gradient that should separate them is small, too. Large weights make each softmax certain before anything is learned.
#
# Where the library does this: [nn/cheaper.py](../src/glassformer/nn/cheaper.py), [nn/attention.py](../src/glassformer/nn/attention.py)
# (`choose_branch`), [explain/heads.py](../src/glassformer/explain/heads.py).
