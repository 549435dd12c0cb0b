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
from lab import BLUE, GREEN, GREY, RED, answer, budget, plt, recorded, span
from scipy.stats import ttest_ind
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import glassformer as gf
from glassformer.data.corpus import europe_splits
from glassformer.evaluate.baselines import tfidf_logistic
from glassformer.explain.heads import habits
from glassformer.explain.methods import subject_of
from glassformer.nn import attend, attend_linear, attend_local
from glassformer.packing import Packing

torch.set_num_threads(1)
splits = europe_splits(budget(600, 4_000))
digits = load_digits()
pictures = (digits.images * 15).astype("uint8")[..., None]  # [1797, 8, 8, 1]
names = [str(d) for d in digits.target]
order = np.random.default_rng(0).permutation(len(pictures))
train_p, test_p = order[: budget(200, 1_200)], order[1_400:]


def text_classifier(**changes):
    settings = dict(
        max_length=64, tokenizer="word", min_count=1, epochs=budget(2, 4), lr=2e-3, batch_size=64, threads=1
    )
    return gf.TextClassifier("encoder-mini", **(settings | changes))


def image_classifier(**changes):
    settings = dict(image_size=8, patch_size=2, channels=1, d_model=64, num_layers=2, num_heads=2, epochs=budget(2, 12),
                    lr=2e-3, batch_size=64, threads=1)  # fmt: skip
    return gf.ImageClassifier("vit-tiny", **(settings | changes))


# %% [markdown]
# ## What reaches the encoder
#
# A sentence is looked up, an image is multiplied: from there on both are rows [N, D] and a note of where each sequence
# lies. Sentences differ in length, images do not.
#
# ![Tokens, ids and rows](../docs/_static/diagrams/text-to-rows.svg)
#
# ![Patches become rows](../docs/_static/diagrams/patches.svg)
#
# **Before you run**: which of the two has more parameters before its first layer, and why?

# %%
text = text_classifier().fit(*splits["train"])
image = image_classifier().fit(pictures[train_p], [names[i] for i in train_p])
texts = splits["test"][0][: budget(20, 100)]
lengths = [len(text.explain(t, method="attention").tokens) for t in texts[:50]]
patches = [len(subject_of(image, p)) for p in pictures[:20]]
parameters = {
    n: sum(p.numel() for p in c.model_.embeddings.parameters())
    / sum(p.numel() for p in c.model_.parameters())
    for n, c in (("text", text), ("image", image))
}
assert type(text.model_.encoder) is type(image.model_.encoder)
figure, ax = plt.subplots(figsize=(6, 2.6))
ax.hist(
    [lengths, patches],
    bins=np.arange(0, 32, 2),
    label=["tokens of a sentence", "patches of a picture, and [CLS]"],
)
ax.set(xlabel="length of the sequence", ylabel="examples")
ax.legend(frameon=False)
plt.show()
answer(
    "modalities",
    f"Rows of one width, and lengths: {min(lengths)} to {max(lengths)} tokens for sentences, always {patches[0]} for pictures. The "
    f"encoder's class is the same; the embedding holds {parameters['text']:.0%} of the text model's parameters (a table of "
    f"{text.tokenizer_.get_vocab_size()} words) and {parameters['image']:.0%} of the image model's (one matrix for all patches).",
)

# %% [markdown]
# **Why.** A table needs a row for each word, a projection only one matrix for all patches: patches of any content share it. Behind the first layer
# nothing differs.

# %% [markdown]
# ## What attention does with each
#
# *Entropy* 1 is an even look over the sequence, 0 one token. *Distance* is in places, as a share of an even look's distance.
# *Movement* is the share of the weight that stands elsewhere than in the mean map of all inputs: what follows content and not
# places. The bars are of the two small models above; the answer is of models that have learned from 4,000 reviews and from
# 2,000 images of CIFAR-10, five seeds each, looked into on 100 held-out inputs by
# [a long run](../benchmarks/quality/lab_maps.py).

# %%
long = [len(subject_of(text, t)) for t in texts[: budget(60, 300)]]
usual = max(set(long), key=long.count)  # one length, so that maps differ by what is read and not by how much
alike = [t for t, n in zip(texts, long) if n == usual][:20]
found = {
    "text": habits([subject_of(text, t) for t in alike]),
    "pictures": habits([subject_of(image, pictures[i]) for i in test_p[:20]]),
}
figure, ax = plt.subplots(figsize=(6, 2.6))
for i, (name, line) in enumerate(found.items()):
    ax.bar(np.arange(3) + 0.36 * i, list(line.values()), width=0.34, label=name)
ax.set_xticks(np.arange(3) + 0.18, list(line))
ax.legend(frameon=False)
plt.show()
about, apart = f"one seed, {len(alike)} sentences of {usual} tokens or 20 pictures", ""
told = {name: {k: f"{v:.2f}" for k, v in f.items()} for name, f in found.items()}
if file := recorded("lab-maps"):
    about = f"{len(file['seeds'])} seeds, {file['inputs']} reviews of 128 tokens or pictures of 65, 95 % intervals"
    found = {name: {k: f["mean"] for k, f in kind.items()} for name, kind in file["kinds"].items()}
    told = {
        name: {k: "{:.2f} ({:.2f} to {:.2f})".format(f["mean"], *f["interval"]) for k, f in kind.items()}
        for name, kind in file["kinds"].items()
    }
    text_moves, picture_moves = (file["kinds"][name]["movement"]["by_seed"] for name in ("text", "pictures"))
    test = ttest_ind(text_moves, picture_moves, equal_var=False)
    low, high = test.confidence_interval()
    apart = (
        f" Of movement, text less pictures is {np.mean(text_moves) - np.mean(picture_moves):+.2f} ({low:+.2f} to {high:+.2f}; Welch's t, "
        f"p = {test.pvalue:.3f}, not corrected for three measures)."
    )
answer(
    "adaptation",
    "; ".join(
        f"{name}: entropy {t['entropy']}, distance {t['distance']} of an even look's, {t['movement']} of the weight moves with "
        "the input"
        for name, t in told.items()
    )
    + f" ({about}).{apart}",
)

# %% [markdown]
# ## The price of length
#
# Every token meets every other: T² scores. Each line below handles the same number of tokens, in longer and longer sequences.
# *Local* attention sees 64 places on either side. *Linear* attention (Katharopoulos et al., 2020) takes φ(q)·φ(k), with φ(x) = elu(x) +
# 1 above 0, in the place of the exponential of q·k/√d_k, and divides by its sum over the keys: (φ(K)ᵀV) can then be computed first,
# and no map is ever made.
#
# **Before you run**: how much more does a sequence of 8,192 tokens cost than eight of 1,024?

# %%
total = budget(1_024, 8_192)  # change me
heads, width = 4, 32
lengths = [n for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if n <= total]


def seconds(run):
    run()
    spent = []
    for _ in range(budget(1, 3)):
        started = time.process_time()  # of the processor: other work on the machine counts little
        run()
        spent.append(time.process_time() - started)
    return min(spent)


cost = {
    "every pair, as in the textbook": [],
    "every pair, the branch chosen here": [],
    "local (64)": [],
    "linear": [],
}
for length in lengths:
    packing = Packing.uniform(total // length, length)
    q, k, v = torch.randn(3, total, heads, width)
    with torch.inference_mode():
        for name, run in zip(
            cost,
            (
                lambda q=q, k=k, v=v, p=packing: attend(q, k, v, p, p, branch="explicit"),
                lambda q=q, k=k, v=v, p=packing: attend(q, k, v, p, p),
                lambda q=q, k=k, v=v, p=packing: attend_local(q, k, v, p, 64),
                lambda q=q, k=k, v=v, p=packing: attend_linear(q, k, v, p),
            ),
        ):
            cost[name].append(seconds(run) * 1e6 / total)
figure, ax = plt.subplots(figsize=(6, 3.2))
for (name, line), colour in zip(cost.items(), (RED, BLUE, GREEN, GREY)):
    ax.plot(lengths, line, "o-", color=colour, label=name)
ax.set(
    xscale="log",
    yscale="log",
    xlabel="length of a sequence",
    ylabel="µs a token",
    title=f"{total} tokens, one thread",
)
ax.legend(frameon=False)
plt.show()
full = cost["every pair, as in the textbook"]
per_sequence = np.log(np.array(full) * np.array(lengths))
early, late = (
    np.polyfit(np.log(lengths)[part], per_sequence[part], 1)[0] for part in (slice(0, 4), slice(-3, None))
)
answer(
    "cost",
    f"From length {lengths[0]} to {lengths[-1]} the price of a token goes from {full[0]:.2f} to {full[-1]:.2f} µs. The price of a "
    f"sequence grows with the length to the power {early:.1f} over the first lengths and {late:.1f} over the last three: the "
    f"arithmetic alone comes to at most 2; the rest is probably memory, for the map of one head at {lengths[-1]} has {lengths[-1] ** 2:,} numbers.",
)
last = {name: line[-1] for name, line in cost.items()}
priced = ""
if file := recorded("cost-encoder"):  # a training step of a whole encoder, in the library's own test bench
    table = file["forward_backward"]
    kinds = list(table["1024"])
    print("length " + " ".join(f"{kind:>11}" for kind in kinds) + "  (ms of processor time a step)")
    for length, line in table.items():
        print(f"{length:>6} " + " ".join(f"{line[kind]['median_ms']:11.0f}" for kind in kinds))
    ms = {kind: table["1024"][kind]["median_ms"] for kind in kinds}
    priced = (
        f" A training step of a whole encoder at 1,024 tokens a text ({file['num_layers']} layers of {file['d_model']}, {file['tokens']:,} tokens) "
        f"takes {ms['full']:.0f} ms with full attention, "
        + ", ".join(f"{v:.0f} with {k.replace(', ', ' ')}" for k, v in ms.items() if k != "full")
        + "."
    )
answer(
    "cheaper",
    f"Seeing neighbors only, where the window is narrow beside the length, or no softmax. At length {lengths[-1]}, in µs a token of attention alone: "
    + ", ".join(f"{n} {v:.2f}" for n, v in last.items())
    + f".{priced} Both compute something else than full attention and are trained with: `attention = local` or `linear` in a recipe.",
)

# %% [markdown]
# **Why.** Eight sequences of 1,024 have 8 · 1,024² pairs, one of 8,192 has eight times as many. Measured costs also include a linear part, which
# hides the square until the sequences are long.

# %% [markdown]
# ## Data hunger
#
# The same models on more and more examples, compared with a simple baseline that learns no features: for texts TF-IDF (the words of a text
# counted, rare ones weighted up) under logistic regression, for digits logistic regression on the pixels.

# %%
held_x, held_y = splits["test"]
test_names = [names[i] for i in test_p]
steps_t, steps_p = budget(([60, 400], [60, 200]), ([50, 200, 800, 2400], [50, 150, 450, 1200]))  # change me
seeds = range(budget(1, 3))  # of the trainings; the plain models have no luck
lines: dict[str, list[list[float]]] = {
    "Transformer, text": [],
    "TF-IDF, text": [],
    "ViT, digits": [],
    "pixels, digits": [],
}
for n in steps_t:
    x, y = splits["train"][0][:n], splits["train"][1][:n]
    epochs = budget(1, max(3, 9_600 // n if n > 400 else 24))
    fits = [text_classifier(epochs=epochs, seed=s).fit(x, y) for s in seeds]
    lines["Transformer, text"].append([clf.score(held_x, held_y) for clf in fits])
    chance = tfidf_logistic(x, [int(label == "other") for label in y], held_x)  # [m, 2]
    lines["TF-IDF, text"].append(
        [float(np.mean(chance.argmax(1) == [int(label == "other") for label in held_y]))]
    )
for n in steps_p:
    x, y = pictures[train_p[:n]], [names[i] for i in train_p[:n]]
    epochs = budget(1, max(12, min(60, 12_000 // n)))
    fits = [image_classifier(epochs=epochs, seed=s).fit(x, y) for s in seeds]
    lines["ViT, digits"].append([clf.score(pictures[test_p], test_names) for clf in fits])
    plain = LogisticRegression(C=0.01, max_iter=1000).fit(x.reshape(n, -1), y)
    lines["pixels, digits"].append(
        [float(plain.score(pictures[test_p].reshape(len(test_p), -1), test_names))]
    )
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for ax, steps, pair in ((axes[0], steps_t, ("Transformer, text", "TF-IDF, text")),
                        (axes[1], steps_p, ("ViT, digits", "pixels, digits"))):  # fmt: skip
    for name, colour in zip(pair, (BLUE, GREY)):
        ax.plot(steps, [np.mean(s) for s in lines[name]], "o-", color=colour, label=name)
        ax.fill_between(
            steps, [min(s) for s in lines[name]], [max(s) for s in lines[name]], color=colour, alpha=0.2
        )
    ax.set(xscale="log", xlabel="training examples", ylabel="test accuracy")
    ax.legend(frameon=False)
plt.show()
told = {name: [span(shares, "{:.0%}") for shares in line] for name, line in lines.items()}
answer(
    "hunger",
    f"With {steps_t[0]} sentences {told['Transformer, text'][0]} (TF-IDF {told['TF-IDF, text'][0]}), with {steps_t[-1]} "
    f"{told['Transformer, text'][-1]} ({told['TF-IDF, text'][-1]}); with {steps_p[0]} digits {told['ViT, digits'][0]} "
    f"(logistic regression on pixels {told['pixels, digits'][0]}), with {steps_p[-1]} {told['ViT, digits'][-1]} "
    f"({told['pixels, digits'][-1]}). {len(seeds)} seeds, {len(held_y)} unseen sentences, {len(test_p)} unseen digits.",
)

# %% [markdown]
# **Why.** Counted words need no learning of features, and each label teaches a weight directly. A Transformer first has to learn what a word or a patch
# is; where the task needs more than counting, it overtakes when examples suffice.

# %% [markdown]
# ## The first weights
#
# A layer begins with random weights. Their spread decides how large the signal and its gradient are after some layers; norms and
# residual sums take much of that back. The curve shows the small ViT of this lab on digits; the same is asked on
# CIFAR-10 and IMDb by [a long run](../benchmarks/quality/lab_questions.py), whose answer stands below.

# %%
spreads = budget((0.02, 0.3), (0.002, 0.02, 0.08, 0.3, 1.0))  # change me
seeds = range(budget(1, 3))
reached = {}
for spread in spreads:
    reached[spread] = [
        image_classifier(init_std=spread, seed=seed)
        .fit(pictures[train_p[:400]], [names[i] for i in train_p[:400]])
        .score(pictures[test_p], test_names)
        for seed in seeds
    ]
figure, ax = plt.subplots(figsize=(6, 2.8))
ax.plot(spreads, [np.mean(v) for v in reached.values()], "o-", color=BLUE)
ax.fill_between(
    spreads,
    [min(v) for v in reached.values()],
    [max(v) for v in reached.values()],
    color=BLUE,
    alpha=0.2,
)
ax.set(xscale="log", xlabel="standard deviation of the first weights", ylabel="test accuracy")
plt.show()
best = max(reached, key=lambda s: np.mean(reached[s]))
worst = min(reached, key=lambda s: np.mean(reached[s]))
answer(
    "initial",
    f"From the best spread, {best:g}, to the worst, {worst:g}, it is {100 * (np.mean(reached[best]) - np.mean(reached[worst])):.0f} "
    f"points on {len(test_p)} digits; the seeds of one spread differ by up to {100 * max(max(v) - min(v) for v in reached.values()):.0f}. "
    f"Learned from 400 digits, {len(seeds)} seeds (lowest to highest): "
    + ", ".join(f"{s:g}: {np.mean(v):.0%} ({min(v):.0%} to {max(v):.0%})" for s, v in reached.items())
    + ".",
)

# %% [markdown]
# ## Exercises
#
# Write the function under the name in brackets; `from lab import check` and `check("07", scores_of=scores_of)` run its hidden test.
#
# 1. How many scores does full attention compute for a 224 px image at patch 16, 8 and 4, in 12 heads and 12 layers?
#    *(`scores_of`)*
# 2. Count the (query, key) pairs of local attention with window w in a sequence of T. When is it half of full attention?
#    *(`local_pairs`)*
# 3. Linear attention is φ(Q)(φ(K)ᵀV) up to a division. Show that the brackets may be moved, and count the products either
#    way. *(`both_orders`)*
#
# Where the library does this: [nn/cheaper.py](../src/glassformer/nn/cheaper.py),
# [nn/cheaper.py](../src/glassformer/nn/cheaper.py), [nn/attention.py](../src/glassformer/nn/attention.py)
# (`choose_branch`), [explain/heads.py](../src/glassformer/explain/heads.py).
