# %% [markdown]
# # The practical: words, a mini-Transformer, and a ViT under study
#
# You walk through a whole practical in one sitting: word vectors on a generated corpus, a mini-Transformer on these vectors that
# says whether a sentence names a European country, and a small ViT whose head, augmentation and explanations you compare.
# Everything runs in about a minute on a laptop without a network. The scores show the mechanism: the recipes behind
# `glassformer reproduce 7` to `10` do the same at full size.
#
# Numbers that you may change are marked `# change me`.

# %%
import tempfile
from pathlib import Path

import numpy as np
import torch
from lab import bars, budget, digit_images, loss_curve, panels, plot
from sklearn.metrics import confusion_matrix, f1_score

import glassformer as gf

torch.set_num_threads(1)

# %% [markdown]
# ## 1. A corpus of countries
#
# Sentences on countries, capitals, currencies and families, made from one seed; we read the first 6,000 of 20,000. Some have a clause of unrelated news.

# %%
texts = gf.data.load_text_dataset("countries").splits["train"].texts[: budget(1_000, 6_000)]  # change me
print(
    len(texts),
    "sentences,",
    len(set(texts)),
    "distinct,",
    len({w for t in texts for w in t.split()}),
    "words",
)
for text in texts[:3]:
    print(" ", text)

# %% [markdown]
# ## 2. Word vectors
#
# Skip-gram: the vector of a word learns to tell its neighbors from words that were drawn at random. The norms grow, because
# words that meet often pull at each other.

# %%
vectors = gf.Word2Vec(
    dim=50, window=5, negative=15, min_count=1, epochs=budget(2, 30), add_contexts=True, seed=0, threads=1
).fit(texts)  # change me
for word in ("Paris", "euro", "king"):
    print(f"{word:6s}", [(near, round(score, 2)) for near, score in vectors.most_similar(word, 3)])
print(
    "king - man + woman:",
    [(near, round(score, 2)) for near, score in vectors.analogy("king", "man", "woman", 3)],
)
print("mean norm:", round(float(np.linalg.norm(vectors[["Paris", "euro", "king"]], axis=1).mean()), 2))

# %% [markdown]
# ## 3. A mini-Transformer on frozen vectors
#
# The vectors stay as they are. A projection, two heads, one layer and [CLS] learn whether a sentence names one of five European
# countries. A European city with another country is a trap: its label is 0. Test sentences are not among the training ones.

# %%
europe = gf.data.load_text_dataset("europe")
train, held, test = (europe.splits[name] for name in ("train", "validation", "test"))
count = budget(200, 4_000)  # change me
labels = np.asarray(train.labels)[:count]
mini = gf.TextClassifier(
    "encoder-mini", vectors="word2vec", embedding_dim=50, freeze_vectors=True, max_length=128, tokenizer="word",
    min_count=1, epochs=budget(1, 4), lr=2e-3, warmup=0.06, batch_size=64, seed=0, threads=1,
)  # fmt: skip
mini.fit(train.texts[:count], labels, validation=(held.texts, held.labels))
answers = mini.predict(test.texts)
print(f"accuracy on {len(test.texts):,} unseen sentences: {(answers == np.asarray(test.labels)).mean():.1%}")
learned, judged = loss_curve(mini)
print("loss, training:  ", [round(x, 3) for x in learned])
print("loss, validation:", [round(x, 3) for x in judged])

# %% [markdown]
# Where does [CLS] look, and which words carry the answer? The two need not agree.

# %%
sentence = test.texts[0]
for method in ("attention", "occlusion"):
    e = mini.explain(sentence, method=method)
    top = sorted(e.words(), key=lambda pair: -abs(pair[1]))[:4]
    print(f"{method:10s} {e.label}:", [(word, round(score, 2)) for word, score in top])

# %% [markdown]
# ## 4. A ViT: which head?
#
# The backbone first learns the digits 0 to 4 and is then frozen; new heads learn 5 to 9. This stands for ImageNet's weights. D is read from
# the backbone; the heads are linear, or an MLP with D/4, D/2 and D hidden units; last, the top block is set free.

# %%
pictures, names, order = digit_images()  # uint8 [1797, 8, 8, 1]
D, fast = 64, {"batch_size": 32, "seed": 0, "threads": 1, "flip": False}
shape = {
    "image_size": 8,
    "patch_size": 2,
    "channels": 1,
    "d_model": D,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 128,
}
first = [i for i in order if names[i] < "5"][: budget(60, 600)]
rest = [i for i in order if names[i] >= "5"]
new, unseen = rest[: budget(40, 200)], rest[-budget(60, 300) :]
body = gf.ImageClassifier("vit-tiny", **shape, **fast, lr=2e-3, epochs=budget(1, 12)).fit(
    pictures[first], names[first]
)
folder = Path(tempfile.mkdtemp()) / "body"
body.save(folder)

heads = {"linear": {}, "MLP, D/4": {"head": "mlp", "head_hidden": D // 4}, "MLP, D/2": {"head": "mlp", "head_hidden": D // 2},
         "MLP, D": {"head": "mlp", "head_hidden": D}, "linear, last block free": {"train_layers": 1}}  # fmt: skip
tried, curves = {}, {}
for name, changes in heads.items():
    settings = {
        "train_layers": 0,
        "lr": 3e-3,
        "epochs": budget(2, 15),
        "keep_best": False,
    } | changes  # change me
    clf = gf.ImageClassifier(str(folder), **fast, **settings)
    clf.fit(pictures[new], names[new], validation=(pictures[unseen], names[unseen]))
    tried[name] = f1_score(names[unseen], clf.predict(pictures[unseen]), average="macro")
    curves[name] = loss_curve(clf)[1]
bars(tried, title="macro-F1 on unseen digits")
plot(curves, title="validation loss", xlabel="epoch")
print({name: f"{score:.1%}" for name, score in tried.items()})
print(confusion_matrix(names[unseen], clf.predict(pictures[unseen])))

# %% [markdown]
# ## 5. Augmentation, step by step
#
# The same ViT from scratch on few images, with nothing but more and more change to them. Best validation accuracy, macro-F1 and
# seconds an epoch; with one seed, differences of a few points are chance.

# %%
few = order[: budget(60, 300)]  # change me
judge = order[-budget(60, 400) :]
ladder, models = {}, {}
for level in ("none", "light", "medium", "strong"):
    clf = gf.ImageClassifier("vit-tiny", **shape, **fast, augment=level, lr=2e-3, epochs=budget(1, 12))
    clf.fit(pictures[few], names[few], validation=(pictures[judge], names[judge]))
    best = max(r["accuracy"] for r in clf.history_ if r["kind"] == "evaluation")
    f1 = f1_score(names[judge], clf.predict(pictures[judge]), average="macro")
    print(
        f"{level:9s} best accuracy {best:.1%}, macro-F1 {f1:.1%}, {clf.train_seconds_ / budget(1, 12):.2f} s an epoch"
    )
    ladder[level], models[level] = best, clf
bars(ladder, title="best validation accuracy")

# %% [markdown]
# ## 6. Where does it look?
#
# Rollout follows [CLS] through the layers; occlusion hides a patch and measures how far the logit falls. Before and after
# augmentation, on one image.

# %%
one = pictures[judge[0]]
for level in ("none", "medium"):
    found = {method: models[level].explain(one, method=method) for method in ("rollout", "occlusion")}
    panels({level: one[..., 0]} | {f"{method}: {e.label}": e.scores for method, e in found.items()})
