# %% [markdown]
# # 4. Images as sequences
#
# What you will see: an image cut into tokens; heads on a frozen backbone; when a small ViT over-fits, and what augmentation, Mixup and CutMix do about it; the same data under a small CNN; and where the ViT looks.
#
# ImageNet's weights are a download; the backbone here needs none: it is trained first on the digits 0 to 4 and then meets 5 to 9.
# The data is scikit-learn's handwriting, 8×8 pixels: the scores show the mechanism and say nothing about photographs.
#
# Where the library does this: [nn/patches.py](../src/glassformer/nn/patches.py), [models/image.py](../src/glassformer/models/image.py),
# [data/augment.py](../src/glassformer/data/augment.py), [image_classifier.py](../src/glassformer/tasks/image_classification/estimator.py).

# %%
import tempfile
from pathlib import Path

import lab
import numpy as np
import torch
from lab import BLUE, GREEN, GREY, RED, accuracy_curve, answer, apart, bars, budget, chance, loss_curve, plt
from sklearn.datasets import load_digits
from small_cnn import fit_cnn

import glassformer as gf
from glassformer.data.augment import mix_pairs
from glassformer.errors import ShapeError
from glassformer.explain.methods import explain_input
from glassformer.nn import ClassificationHead, PatchConfig, PatchEmbedding
from glassformer.nn.patches import cut_patches

torch.set_num_threads(1)
digits = load_digits()
pictures = (digits.images * 15).astype("uint8")[..., None]  # [1797, 8, 8, 1]
names = np.array([str(d) for d in digits.target])
order = np.random.default_rng(0).permutation(len(pictures))
pixels, classes = torch.from_numpy(pictures).permute(0, 3, 1, 2), torch.from_numpy(digits.target)
held = order[-budget(100, 500) :]
SMALL_DATA = budget(80, 300)  # change me
few = order[:SMALL_DATA]
base = dict(image_size=8, patch_size=2, channels=1, d_model=64, num_layers=2, num_heads=4, d_ff=128, lr=2e-3, batch_size=32,
            epochs=budget(2, 30), flip=False, keep_best=False, seed=0, threads=1)  # fmt: skip


def fit(rows=few, judged=held, **changes):
    settings = changes if "model" in changes else {"model": "vit-tiny"} | base | changes
    clf = gf.ImageClassifier(**settings)
    return clf.fit(pictures[rows], names[rows].tolist(), validation=(pictures[judged], names[judged].tolist()))  # fmt: skip


# %% [markdown]
# ## Where 197 comes from
#
# A patch of P×P pixels is flattened and multiplied by one matrix: a convolution with kernel = stride = P. ⌊H/P⌋·⌊W/P⌋ patches and one [CLS].
#
# ![Patches become rows](../docs/_static/diagrams/patches.svg)
#
# **Before you run**: how many rows has an image of 384 pixels with patches of 16? What does that do to the size of an attention map?

# %%
config = PatchConfig(768, (224, 224), (16, 16))  # change me
layer = PatchEmbedding(config)
rows, packing = layer(torch.zeros(2, 3, 224, 224))
patch = cut_patches(torch.from_numpy(pictures[:1]).permute(0, 3, 1, 2).float(), (2, 2))
figure, axes = plt.subplots(1, 2, figsize=(6, 2.4), width_ratios=(1, 3))
axes[0].imshow(pictures[0][..., 0], cmap="Greys")
axes[1].imshow(patch.reshape(16, -1).T, cmap="Greys")
axes[0].set(title="a picture", xticks=[], yticks=[])
axes[1].set(title="16 patches of 2×2: its sequence", xticks=[], yticks=[])
plt.show()
answer("tokens-197", f"(224 / 16)² = {(224 // 16) ** 2} patches and 1 [CLS]: the layer makes {packing.lengths[0]} rows of {rows.shape[1]} for each "
       f"picture, {config.num_tokens} by its config.")  # fmt: skip

# %% [markdown]
# **Why.** The convolution with kernel = stride takes each patch once, so the number of rows is the area in patches. A map has the square of that: 384
# pixels give 577 rows and 8.6 times the numbers of 197.

# %% [markdown]
# ## Pooler output or raw [CLS]
#
# BERT's pooler is one more layer with tanh on [CLS]. Decided by experiment, over seeds.

# %%
seeds = budget((0,), (0, 1, 2, 3, 4))  # change me
hits = {p: np.array([fit(pooling=p, seed=s, epochs=budget(1, 20)).predict(pictures[held]).astype(str) == names[held]
                     for s in seeds]) for p in ("first", "pooler", "mean")}  # fmt: skip
found = {p: h.mean(1) for p, h in hits.items()}  # right or not: [seeds, digits]
less = hits["first"] * 1.0 - hits["pooler"]
figure, ax = plt.subplots(figsize=(5, 1.8))
means = {n: float(np.mean(a)) for n, a in found.items()}
bars(ax, means, form="{:.1%}", title=f"accuracy, {SMALL_DATA} digits")
plt.show()
_, low, high = apart(less)
answer("pooler", "; ".join(f"{n} {lab.span(a)}" for n, a in found.items()) + f" of {len(held)} digits, {len(seeds)} seeds. Raw [CLS] less pooler: "
       f"{lab.points(less)}; " + ("no difference has been shown." if low <= 0 <= high else "a difference beyond chance."))  # fmt: skip

# %%
head = ClassificationHead(64, 10)
try:
    head(torch.randn(2, 48))
    caught = "nothing was said about 64 and 48"
except ShapeError as error:
    caught = str(error)
answer("wrong-head", f"Yes, with both sizes named: “{caught}”")

# %% [markdown]
# ## Heads on a frozen backbone
#
# The backbone learns 0 to 4. Then it is frozen, and a head learns 5 to 9: linear, or an MLP with H hidden units.

# %%
first = [i for i in order[:-300] if digits.target[i] < 5]
second = [i for i in order[:-300] if digits.target[i] >= 5]
new = np.array(second[: budget(40, 120)])
judged = np.array([i for i in order[-300:] if digits.target[i] >= 5])
known = np.array([i for i in order[-300:] if digits.target[i] < 5])
backbone = fit(np.array(first[: budget(60, 700)]), known, epochs=budget(2, 15))
folder = Path(tempfile.mkdtemp()) / "backbone"
backbone.save(folder)
print(f"the backbone knows 0 to 4: {accuracy_curve(backbone)[1][-1]:.1%}")


def fit_head(**changes):
    settings = dict(model=str(folder), train_layers=0, epochs=budget(2, 100), lr=3e-3, batch_size=32, seed=0, threads=1,
                    keep_best=False)  # fmt: skip
    return fit(new, judged, **(settings | changes))


heads = {"linear": dict(head="linear")} | {
    f"MLP, H = {h}": dict(head="mlp", head_hidden=h) for h in (16, 32, 64)
}  # change me
fits = {name: [fit_head(**s, seed=seed) for seed in seeds] for name, s in heads.items()}
curves = {  # means over the seeds, of training and of unseen digits
    name: tuple(np.mean([curve(clf) for clf in clfs], 0) for curve in (accuracy_curve, loss_curve))
    for name, clfs in fits.items()
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3))
for (name, (accuracy, loss)), colour in zip(curves.items(), (BLUE, GREY, GREEN, RED)):
    axes[0].plot(accuracy[1], color=colour, label=name)
    axes[1].plot(loss[1], color=colour, label=name)
    axes[1].plot(loss[0], color=colour, linestyle=":", linewidth=1)
axes[0].set(xlabel="epoch", ylabel="accuracy on unseen digits")
axes[1].set(xlabel="epoch", ylabel="loss (dotted: training)")
axes[0].legend(frameon=False)
plt.show()

goal = 0.95 * min(max(a[1]) for a, _ in curves.values())  # all of them come there
turned = [n for n, (_, loss) in curves.items() if loss[1][-1] > 1.02 * min(loss[1])]
sure = 1.96 * (0.25 / len(judged)) ** 0.5
soonest = min(curves, key=lambda n: np.argmax(curves[n][0][1] >= goal)).replace(",", "")
answer(
    "head",
    f"{soonest} is the first to have {goal:.0%} right. The epoch of that, accuracy and losses at the end: "
    + "; ".join(
        f"{n.replace(',', '')}: epoch {int(np.argmax(a[1] >= goal)) + 1}, {a[1][-1]:.1%}, {loss[0][-1]:.2f} in training and {loss[1][-1]:.2f} unseen"
        for n, (a, loss) in curves.items()
    )
    + f". The unseen loss ends more than 2 % above its lowest for: {'; '.join(turned) or 'none, so no over-fitting was seen'} "
    f"(means of {len(seeds)} seeds; {len(new)} training digits, {len(judged)} unseen, ± {sure:.1%} at most for each accuracy).",
)

# %%
drops = (0.0, 0.2, 0.5)  # change me
settings = dict(head="mlp", head_hidden=64, epochs=budget(1, 25))
grid = {  # accuracies by seed
    name: [[accuracy_curve(fit_head(**settings, head_dropout=d, train_layers=n, seed=s))[1][-1] for s in seeds] for d in drops]
    for name, n in (("frozen", 0), ("last block learns", 1))
}  # fmt: skip
figure, ax = plt.subplots(figsize=(5, 2.6))
for name, line in grid.items():
    ax.plot(drops, np.mean(line, 1), "o-", label=name)
ax.set(xlabel="dropout in the head", ylabel="accuracy")
ax.legend(frameon=False)
plt.show()
share = float(np.mean(list(grid.values())))
learning = np.mean(grid["last block learns"]) - np.mean(grid["frozen"])
dropping = max(np.ptp(np.mean(line, 1)) for line in grid.values())
answer("head-dropout", "; ".join(f"{n}: " + ", ".join(f"{d} {lab.span(a)}" for d, a in zip(drops, line)) for n, line in grid.items())
       + f" (fewer epochs than above, one rate for all; {len(seeds)} seeds; {len(judged)} digits, by whose draw {share:.0%} may be {chance(share, len(judged), '{:.0%}')}). "
       f"A last block that learns moves the mean by {100 * learning:+.0f} points, the dropout of the head by {100 * dropping:.0f} at most.")  # fmt: skip

# %% [markdown]
# **Why.** A wider head reaches the training labels sooner and further. On few examples the loss on unseen ones soon stops following.

# %% [markdown]
# ## When over-fitting begins
#
# The loss on unseen digits turns while that of training falls. A flat line has a lowest point too: a turn ends at least a twentieth higher.

# %%
handful = budget(40, 100)  # change me: digits
clfs = [fit(few[:handful], held, seed=s, epochs=budget(3, 150), keep_best=False) for s in seeds]
training, unseen = np.mean([loss_curve(clf) for clf in clfs], 0)
unseen_right = np.mean([accuracy_curve(clf)[1] for clf in clfs], 0)
turn = int(np.argmin(unseen)) + 1
figure, ax = plt.subplots(figsize=(6, 2.8))
ax.plot(range(1, len(training) + 1), training, label="training")
ax.plot(range(1, len(unseen) + 1), unseen, label="unseen")
ax.axvline(turn, color=GREY, linewidth=0.8)
ax.set(xlabel="epoch", ylabel="loss")
ax.legend(frameon=False)
plt.show()
answer(
    "overfitting",
    (
        f"With {handful} digits about epoch {turn} of {len(unseen)}"
        if unseen[-1] > 1.05 * unseen[turn - 1]
        else "Not seen"
    )
    + f": the unseen loss is lowest in epoch {turn} ({unseen[turn - 1]:.2f}) and {unseen[-1]:.2f} at the end, that of training "
    f"{training[-1]:.3f}. The unseen accuracy is {unseen_right[turn - 1]:.1%} there and {unseen_right[-1]:.1%} at the end: a loss that "
    f"rises need not cost accuracy (means of {len(seeds)} seeds, {len(held)} unseen digits).",
)

# %% [markdown]
# **Why.** The model grows more certain of everything, also where it is wrong, and the loss punishes certainty in the wrong class without limit.
# Accuracy only asks which class is ahead.

# %% [markdown]
# ## The augmentation ladder
#
# none; light: a random part of the image, scaled; medium: also brightness, contrast and, in some, an erased rectangle; strong: as medium, with two
# random operations of RandAugment (Cubuk et al., 2020: rotate, shear ...) in place of the colors. Nothing is mirrored: a mirrored 2 is not a 2.
#
# **Before you run**: which strength is best for 8×8 digits, on which a shift by one pixel is an eighth of the image?

# %%
levels = ("none", "light", "medium", "strong")  # change me
epochs = budget(2, 40)  # change me


def right(predicted, rows=held):
    """Which of the digits are right, 0 or 1: ``[n]``."""
    return np.array([str(int(p)) for p in predicted]) == names[rows]


vits = {(level, seed): fit(augment=level, epochs=epochs, seed=seed) for level in levels for seed in seeds}
each = {
    n: np.array([right(vits[n, s].predict(pictures[held])) for s in seeds]) for n in levels
}  # [seeds, digits]
vit = {n: float(e.mean()) for n, e in each.items()}
figure, ax = plt.subplots(figsize=(5, 2))
bars(ax, vit, form="{:.1%}", title=f"accuracy, {SMALL_DATA} digits, seeds: {len(seeds)}")
plt.show()
best = max(vit, key=vit.get)
less = {
    n: each[n] * 1.0 - each["none"] for n in levels[1:]
}  # the same digits, so their differences are judged
falls = [n for n, d in less.items() if apart(d)[2] < 0]
answer(
    "ladder",
    ", ".join(f"{n} {a:.1%}" for n, a in vit.items())
    + f" ({len(held)} digits, means of {len(seeds)} seeds): highest at {best}. Less none: "
    + ", ".join(f"{n} {lab.points(d)}" for n, d in less.items())
    + f"; below none beyond chance: {', '.join(falls) or 'no strength'}.",
)

# %% [markdown]
# **Why.** Augmentation helps if the changed image keeps its label and could occur. On 8×8 digits a crop may cut off what tells a 3 from an 8; on
# photographs much more can go.

# %% [markdown]
# ## The same on photographs
#
# Hot dog or not: 200 photographs for training, 50 for evaluation, 96 x 96 pixels, from our own CIFAR-10 ViT, three seeds: an hour, and so read from
# result files. A line is the 95 % interval of one variant, wide with 50 images. Whether two differ is read from a test on their *difference*, corrected
# for the number of comparisons: it stands, with the same ladder on five kinds of flowers, in [the studies](../docs/studies.md).

# %%
studies = {name: lab.studied(name) for name in ("hotdog-ladder-cifar", "hotdog-heads-cifar")}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
for ax, (name, arms) in zip(axes, studies.items(), strict=True):
    for i, arm in enumerate(arms.values()):
        mean, (low, high) = arm["accuracy"]["mean"], arm["accuracy"]["interval"]
        ax.barh(i, mean, color=BLUE, height=0.6)
        ax.plot((low, high), (i, i), color=RED)
    ax.set_yticks(range(len(arms)), list(arms), fontsize=8)
    ax.invert_yaxis()
    ax.set(title=name, xlim=(0, 1), xlabel="accuracy")
plt.show()
for name, arm in (pair for arms in studies.values() for pair in arms.items()):
    changed = arm.get("robustness")
    print(
        f"{name:28} {arm['accuracy']['mean']:.1%}, macro-F1 {arm['macro_f1']['mean']:.1%}, "
        f"{arm['cost']['seconds_per_epoch']:.1f} s an epoch"
        + (f", on changed pictures {changed['accuracy']:.1%}" if changed else "")
    )

# %% [markdown]
# ## Larger images, from scratch
#
# A ViT on CIFAR-10, plain and with a convolution stem, and one of a single layer on five kinds of flowers, compared with logistic
# regression on the same images at 16 x 16 pixels. The trainings are read from their result files, as is the recipe for digits.

# %%
some = ("cifar10-vit", "cifar10-vit-stem", "flowers-vit", "digits")
files = {name: lab.recorded(f"recipe-{name}") for name in some}
figure, ax = plt.subplots(figsize=(6, 3.2))
shown = {}
for name, file in files.items():
    if file:
        shown[f"{name}, seeds: {len(file['seeds'])}"] = file["accuracy"]["mean"]
        for plain, found in file["runs"][0]["baselines"].items():
            shown[f"{name}: {plain.partition(' (')[0]}"] = found["accuracy"]
bars(ax, shown, form="{:.1%}", title="test accuracy (result files)")
plt.show()

# %% [markdown]
# ## Soft labels: Mixup and CutMix
#
# Two images become one, and so do their labels. *Mixup* (Zhang et al., 2018): λa + (1 - λ)b, with the label λ of a and 1 - λ of b, λ
# drawn from 0 to 1. *CutMix* (Yun et al., 2019): a rectangle of b is put on a, and λ is the share of a that is left. The loss cannot
# fall below the entropy of such a label, -Σ p ln p, and training accuracy loses its meaning; only unseen images tell.
#
# ![Mixup and CutMix](../docs/_static/diagrams/mixup.svg)
#
# **Before you run**: the training loss with mixup ends far above that without. Is the model worse?

# %%
x, mixed = mix_pairs(pixels[few[:4]].float() / 255, "cutmix", 1.0, 1.0, torch.Generator().manual_seed(1))
y, _ = mix_pairs(pixels[few[:4]].float() / 255, "mixup", 1.0, 1.0, torch.Generator().manual_seed(1))
soft = mixed.soften(classes[few[:4]], 10)
figure, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for i in range(4):
    for ax, image in ((axes[i], x[i, 0]), (axes[4 + i], y[i, 0])):
        ax.imshow(image, cmap="Greys", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    axes[i].set_title(
        ", ".join(f"{int(c)}: {float(soft[i, c]):.2f}" for c in soft[i].nonzero().flatten()), fontsize=8
    )
    axes[4 + i].set_title("mixup", fontsize=8)
plt.show()
mixes = {(kind, s): fit(mix=kind, epochs=epochs, seed=s) for kind in ("mixup", "cutmix") for s in seeds}
first = {"none": vits["none", 0]} | {kind: mixes[kind, 0] for kind in ("mixup", "cutmix")}  # of seed 0
ends = {  # of each seed: training loss, unseen loss, unseen accuracy
    kind: [(loss_curve(c)[0][-1], loss_curve(c)[1][-1], accuracy_curve(c)[1][-1]) for c in ((vits | mixes)[kind, s] for s in seeds)]
    for kind in first
}  # fmt: skip
entropy = float(-(soft.clamp(min=1e-9).log() * soft).sum(1).mean())
answer(
    "soft-labels",
    "; ".join(
        f"{k}: training loss {lab.span(t, '{:.2f}')}, unseen {lab.span(u, '{:.2f}')}, unseen accuracy {lab.span(a)}"
        for k, (t, u, a) in ((k, zip(*runs)) for k, runs in ends.items())
    )
    + f" ({len(held)} digits, {len(seeds)} seeds). The four soft labels above have an entropy of {entropy:.2f} nats, below which their loss cannot fall.",
)

# %% [markdown]
# **Why.** A soft label cannot be met with a loss of 0, so the training loss says nothing about quality. The network may never be fully certain, which acts
# against over-fitting.

# %% [markdown]
# ## A small CNN under the same changes
#
# Locality and shared weights are built into a CNN; a ViT must learn them, and so it is said to gain more from changed images. Both get the same
# six treatments and seeds here ([small_cnn.py](../labs/small_cnn.py) is the CNN). The best treatment of each is chosen on other digits than those of the evaluation.

# %%
choosing = order[SMALL_DATA : SMALL_DATA + budget(80, 400)]  # neither learned from nor judged on
tried = {"ViT": {}, "small CNN": {}}  # treatment -> (chosen on, judged on): which are right, [seeds, n] each
for treatment in (*levels, "mixup", "cutmix"):
    fitted = [(vits | mixes)[treatment, s] for s in seeds]
    cnns = [fit_cnn(pixels[few], classes[few], treatment, epochs, s) for s in seeds]
    both = choosing, held
    tried["ViT"][treatment] = [np.array([right(c.predict(pictures[r]), r) for c in fitted]) for r in both]
    tried["small CNN"][treatment] = [np.array([right(c.says(pixels[r]), r) for c in cnns]) for r in both]
figure, ax = plt.subplots(figsize=(7, 2.8))
for i, (name, found) in enumerate(tried.items()):
    ax.bar(np.arange(6) + 0.38 * i, [judged.mean() for _, judged in found.values()], width=0.36, label=name)
ax.set_xticks(np.arange(6) + 0.19, list(found))
ax.set(ylabel="accuracy", ylim=(0.5, 1))
ax.legend(frameon=False)
plt.show()
chosen = {name: max(found, key=lambda t: found[t][0].mean()) for name, found in tried.items()}
gains = {n: tried[n][kind][1] * 1.0 - tried[n]["none"][1] for n, kind in chosen.items()}  # [seeds, n] each
more = gains["ViT"] - gains["small CNN"]
_, low, high = apart(more)
verdict = (
    "So the ViT gains more on these digits, as is expected where locality and shared weights are not built in."
    if low > 0
    else "So the small CNN gains more on these digits, against what is expected of its built-in locality."
    if high < 0
    else "The interval holds 0: that the ViT gains more has not been shown on these digits."
)
answer(
    "bias",
    f"On {SMALL_DATA} digits, {len(seeds)} seeds, the same six treatments for both: "
    + "; ".join(
        f"{name} {tried[name]['none'][1].mean():.1%} without augmentation, {tried[name][kind][1].mean():.1%} with {kind} (chosen on "
        f"other digits), a gain of {gains[name].mean():+.1%} (by seed {gains[name].mean(1).min():+.1%} to {gains[name].mean(1).max():+.1%})"
        for name, kind in chosen.items()
    )
    + f". The ViT's gain less the CNN's: {lab.points(more)} on {len(held)} judging digits. {verdict}",
)

# %% [markdown]
# ## Where the ViT looks, before and after augmentation
#
# Rollout of [CLS], and occlusion: how far the logit falls when a patch is hidden.

# %%
pair = {kind: first[kind] for kind in ("none", "cutmix")}
figure, axes = plt.subplots(2, 5, figsize=(9, 3.8))
for row, (name, clf) in enumerate(pair.items()):
    axes[row, 0].imshow(pictures[held[0]][..., 0], cmap="Greys")
    axes[row, 0].set(title=f"{name}: it says {clf.predict(pictures[held[:1]])[0]}", xticks=[], yticks=[])
    for column, method in enumerate(("attention", "rollout", "gradient_x_input", "occlusion")):
        scores = explain_input(clf, pictures[held[0]], method=method).scores
        most = np.abs(scores).max()
        axes[row, 1 + column].imshow(scores, cmap="RdBu", vmin=-most, vmax=most)
        axes[row, 1 + column].set(title=method, xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Exercises
#
# Write the function under the name in brackets; `from lab import check` and `check("04", patches=patches)` run its hidden test.
#
# 1. Cut an image into patches with `reshape` and `permute` alone. *(`patches`)*
# 2. Show that patch embedding is a convolution with kernel = stride. *(`as_convolution`)*
# 3. CutMix's label says how much of each image is left. Compute it from the rectangle, without what hangs over the edge. *(`share_left`)*
#
# Where the library does this: [data/augment.py](../src/glassformer/data/augment.py), [explain/attention.py](../src/glassformer/explain/attention.py), [explain/occlusion.py](../src/glassformer/explain/occlusion.py).
