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
from lab import accuracy_curve, answer, bars, budget, check, groups, loss_curve, panels, plot
from small_cnn import fit_cnn
from torch import Tensor

import glassformer as gf
from glassformer.data.augment import mix_pairs
from glassformer.errors import ShapeError
from glassformer.explain.methods import explain_input
from glassformer.nn import ClassificationHead, PatchConfig, PatchEmbedding
from glassformer.nn.patches import cut_patches

# %%
torch.set_num_threads(1)
images, names, order = lab.digit_images()  # uint8 [1797, 8, 8, 1]
pixels, classes = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(names.astype(int))
seeds = budget((0,), (0, 1, 2))  # change me
few = order[: budget(80, 300)]  # change me: digits to learn from
held = order[-budget(100, 500) :]
base = dict(model="vit-tiny", image_size=8, patch_size=2, channels=1, d_model=64, num_layers=2, num_heads=4, d_ff=128, lr=2e-3,
            batch_size=32, epochs=budget(2, 30), flip=False, keep_best=False, seed=0, threads=1)  # fmt: skip


def fit(rows=few, judged=held, settings=base, **changes):
    clf = gf.ImageClassifier(**(settings | changes))
    return clf.fit(images[rows], names[rows].tolist(), validation=(images[judged], names[judged].tolist()))


# %% [markdown]
# ## Where 197 comes from
#
# **Idea.** A Transformer reads rows, so an image must become rows. It is cut into *patches* of P×P pixels, from left to right and from top to bottom.
# A patch is flattened and multiplied by one matrix: a convolution with kernel = stride = P. That makes ⌊H/P⌋·⌊W/P⌋ rows, in front of them
# one learned row, [CLS], which collects what the head needs. A learned row for each place says where a patch was.
#
# ![Patches become rows](../docs/_static/diagrams/patches.svg)
#
# **Before you run**: how many rows has an image of 384 pixels with patches of 16? What does that do to the size of an attention map?

# %%
config = PatchConfig(768, (224, 224), (16, 16))  # change me
rows, packing = PatchEmbedding(config)(torch.zeros(2, 3, 224, 224))
patch = cut_patches(pixels[:1].float(), (2, 2))
panels({"an image": images[0][..., 0], "16 patches of 2×2": patch.reshape(16, -1).T}, cmap="Greys")
answer("tokens-197", patches=(224 // 16) ** 2, rows=packing.lengths[0], width=rows.shape[1], config=config.num_tokens)  # fmt: skip

# %% [markdown]
# **Why.** The convolution with kernel = stride takes each patch once, so the number of rows is the area in patches. A map has the square of that: 384
# pixels give 577 rows and 8.6 times the numbers of 197.
#
# **Your turn**: cut images into patches with `reshape` and `permute` alone, and show that patch embedding is a convolution: patches times a
# matrix, and the same weights under `conv2d`. *(`patches`)* *(`as_convolution`)*


# %%
def patches(images: Tensor, p: int) -> Tensor:
    """[B, C, H, W] -> [B, (H/p)(W/p), C p p], row by row."""
    ...  # your turn


def as_convolution(images: Tensor, weight: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """A matrix [D, C p p] -> two [B, (H/p)(W/p), D], which should be equal."""
    ...  # your turn


check("04", patches=patches)
check("04", as_convolution=as_convolution)

# %% [markdown]
# ## Pooler output or raw [CLS]
#
# **Idea.** The head needs one row of the sequence. `first` takes the row of [CLS], `mean` the mean of all rows. BERT's *pooler* is one more layer with tanh on [CLS].
# Which one is best cannot be derived; it is decided by experiment, over seeds, and with the draw of the digits in mind.
# An interval of a difference that holds 0 shows nothing.
#
# **Before you run**: how large will the difference be, compared with that between two seeds?


# %%
def right(predicted, rows=held) -> np.ndarray:
    """1.0 where a digit is right and 0.0 where it is wrong, [n]."""
    return 1.0 * (np.array([str(int(p)) for p in predicted]) == names[rows])


hits = {}  # [seeds, digits] each
for pooling in ("first", "pooler", "mean"):
    models = [fit(pooling=pooling, seed=seed, epochs=budget(1, 20)) for seed in seeds]
    hits[pooling] = np.array([right(model.predict(images[held])) for model in models])
accuracy = {name: h.mean(1) for name, h in hits.items()}
bars(accuracy, title=f"accuracy, {len(few)} digits")
answer("pooler", accuracy=accuracy, n=len(held), seeds=len(seeds), less=hits["first"] - hits["pooler"])

# %% [markdown]
# **Before you run**: a head for rows of 64 numbers gets 48. What happens?

# %%
try:
    ClassificationHead(64, 10)(torch.randn(2, 48))
except ShapeError as error:
    answer("wrong-head", error=error)

# %% [markdown]
# **Why.** [CLS] and the pooler read the same row; one more layer hardly changes what it can say. A matrix product fits only if the widths agree, and the library
# says which ones it has met.
#
# ## Heads on a frozen backbone
#
# **Idea.** A *backbone* that has learned one task is a start for another. It learns 0 to 4. Then it is *frozen*, its weights do not change, and a head learns 5 to 9:
# linear, or an *MLP*, two matrices with a bend between them and H hidden units. A larger head can say more about the same rows,
# and has more weights to over-fit with. (The library can solve a linear head at once; here all begin with random weights, so that their curves can be compared.) *Dropout* sets random hidden units to 0 in training, so that none can be relied on.

# %%
old, new = ([i for i in order if (classes[i] < 5) == small] for small in (True, False))
known, judged = np.array(old[-150:]), np.array(new[-150:])
few_new = np.array(new[: budget(40, 120)])
backbone = fit(np.array(old[: budget(60, 700)]), known, epochs=budget(2, 15))
folder = Path(tempfile.mkdtemp()) / "backbone"
backbone.save(folder)
print(f"the backbone knows 0 to 4: {accuracy_curve(backbone)[1][-1]:.1%}")


def fit_head(**changes):
    settings = dict(model=str(folder), train_layers=0, head_start="random", epochs=budget(2, 100), lr=3e-3, batch_size=32, threads=1, keep_best=False)  # fmt: skip
    return fit(few_new, judged, settings, **changes)


# %% [markdown]
# **Before you run**: which head is the first to have 9 of 10 training digits right? Which one has the lowest loss on unseen ones at the end?

# %%
heads = {"linear": {}} | {f"MLP, H = {h}": dict(head="mlp", head_hidden=h) for h in (16, 32, 64)}  # change me
fits = {name: [fit_head(seed=seed, **head) for seed in seeds] for name, head in heads.items()}
accuracy = {name: np.array([accuracy_curve(clf)[1] for clf in clfs]) for name, clfs in fits.items()}
losses = {name: np.array([loss_curve(clf) for clf in clfs]) for name, clfs in fits.items()}
plot(accuracy, xlabel="epoch", ylabel="accuracy on unseen digits")
plot({name: line[:, 1] for name, line in losses.items()}, xlabel="epoch", ylabel="loss on unseen digits")
goal = 0.95 * min(line.mean(0).max() for line in accuracy.values())  # all of them come there
epochs = {name: int(np.argmax(line.mean(0) >= goal)) + 1 for name, line in accuracy.items()}
training, unseen = ({name: line[:, i, -1].mean() for name, line in losses.items()} for i in (0, 1))
lowest = {name: line[:, 1].mean(0).min() for name, line in losses.items()}
end = {name: line[:, -1].mean() for name, line in accuracy.items()}
answer("head", goal=goal, epochs=epochs, end=end, training=training, unseen=unseen, lowest=lowest, seeds=len(seeds), digits=len(few_new), n=len(judged))  # fmt: skip

# %% [markdown]
# **Before you run**: dropout in the head, with the backbone frozen and with its last block learning too: which of the two choices matters more?

# %%
drops = (0.0, 0.2, 0.5)  # change me
settings = dict(head="mlp", head_hidden=64, epochs=budget(1, 25))
grid = {}
for name, layers in (("frozen", 0), ("last block learns", 1)):
    for drop in drops:
        clfs = [fit_head(**settings, head_dropout=drop, train_layers=layers, seed=seed) for seed in seeds]
        grid[f"{name}, dropout {drop}"] = [accuracy_curve(clf)[1][-1] for clf in clfs]
bars(grid, title="accuracy on unseen digits")
answer("head-dropout", grid=grid, seeds=len(seeds), n=len(judged), between=lab.chance(0.75, len(judged), "{:.0%}"))  # fmt: skip

# %% [markdown]
# **Why.** A wider head reaches the training labels sooner and further. On few examples the loss on unseen ones soon stops following. The rows that the frozen backbone gives
# were made for other digits; a block that learns can change them, a head cannot.
#
# **Your turn**: the number of weights and biases of an MLP head. *(`head_parameters`)*


# %%
def head_parameters(d_model: int, hidden: int, classes: int) -> int:
    """d_model -> hidden -> classes."""
    ...  # your turn


check("04", head_parameters=head_parameters)

# %% [markdown]
# ## When over-fitting begins
#
# **Idea.** A model *over-fits* when it learns by heart: the loss on unseen digits turns while that of training
# falls. We give it few digits and many epochs, and look for the turn. A flat line has a lowest point too: a turn ends at least a twentieth higher.
#
# **Before you run**: where the unseen loss rises, does the unseen accuracy fall?

# %%
handful = budget(40, 100)  # change me: digits
clfs = [fit(few[:handful], seed=s, epochs=budget(3, 150)) for s in seeds]
training, unseen = np.mean([loss_curve(clf) for clf in clfs], 0)
accuracy = np.mean([accuracy_curve(clf)[1] for clf in clfs], 0)
plot({"training": training, "unseen": unseen}, xlabel="epoch", ylabel="loss")
at = int(np.argmin(unseen))
answer("overfitting", digits=handful, epoch=at + 1, epochs=len(unseen), lowest=unseen[at], end=unseen[-1], training=training[-1],
       before=accuracy[at], after=accuracy[-1], seeds=len(seeds), n=len(held))  # fmt: skip

# %% [markdown]
# **Why.** The model grows more certain of everything, also where it is wrong, and the loss punishes certainty in the wrong class without limit.
# Accuracy only asks which class is ahead.
#
# ## The augmentation ladder
#
# **Idea.** *Augmentation* changes each training image at random in ways that keep its label. Four strengths: none; light: a random part of the image, scaled;
# medium: also brightness, contrast and, in some, an erased rectangle; strong: as medium, with two
# random operations of RandAugment (Cubuk et al., 2020: rotate, shear ...) in place of the colors. Nothing is mirrored: a mirrored 2 is not a 2.
#
# **Before you run**: which strength is best for 8×8 digits, on which a shift by one pixel is an eighth of the image?

# %%
levels = ("none", "light", "medium", "strong")  # change me
epochs = budget(2, 40)  # change me
vits = {level: [fit(augment=level, epochs=epochs, seed=s) for s in seeds] for level in levels}
hits = {level: np.array([right(clf.predict(images[held])) for clf in clfs]) for level, clfs in vits.items()}
vit = {level: h.mean() for level, h in hits.items()}
bars(vit, title=f"accuracy, {len(few)} digits, seeds: {len(seeds)}")
less = {level: hits[level] - hits["none"] for level in levels[1:]}  # on the same digits
answer("ladder", vit=vit, n=len(held), seeds=len(seeds), less=less)

# %% [markdown]
# **Why.** Augmentation helps if the changed image keeps its label and could occur. On 8×8 digits a crop may cut off what tells a 3 from an 8; on
# photographs much more can go.
#
# ## The same on photographs
#
# **Idea.** Hot dog or not: 200 photographs for training, 50 for evaluation, 96 x 96 pixels, from our own CIFAR-10 ViT, three seeds: an hour, and so read from
# result files. The 95 % interval of one variant is wide with 50 images. Whether two differ is read from a test on their *difference*, corrected
# for the number of comparisons: it is, with the same ladder on five kinds of flowers, in [the studies](../docs/studies.md).
#
# **Before you run**: how wide is the interval of an accuracy of 80 % on 50 images?

# %%
for study in ("hotdog-ladder-cifar", "hotdog-heads-cifar"):
    found = lab.studied(study)
    bars({name: arm["accuracy"]["mean"] for name, arm in found.items()}, title=f"{study}: accuracy")
    for name, arm in found.items():
        low, high = arm["accuracy"]["interval"]
        print(f"{name:28} {low:.1%} to {high:.1%}, {arm['cost']['seconds_per_epoch']:.1f} s per epoch")

# %% [markdown]
# **Why.** With n images an interval is about 1/√n wide on either side. Differences on the same images are more precise, since what is hard for one model is hard for the other.
#
# ## Larger images, from scratch
#
# **Idea.** A ViT on CIFAR-10, plain and with a convolution stem, and one of a single layer on five kinds of flowers, compared with logistic
# regression on the same images at 16 x 16 pixels. The trainings are read from their result files, as is the recipe for digits.
#
# **Before you run**: is a ViT from scratch ahead of logistic regression on pixels everywhere?

# %%
shown = {}
for name in ("cifar10-vit", "cifar10-vit-stem", "flowers-vit", "digits"):
    if file := lab.recorded(f"recipe-{name}"):
        shown[f"{name}, seeds: {len(file['seeds'])}"] = file["accuracy"]["mean"]
        for plain, found in file["runs"][0]["baselines"].items():
            shown[f"{name}: {plain.partition(' (')[0]}"] = found["accuracy"]
bars(shown, title="test accuracy (result files)")

# %% [markdown]
# **Why.** Pixels at fixed places say much about centered digits and little about photographs, in which the object moves.
#
# ## Soft labels: Mixup and CutMix
#
# **Idea.** Two images become one, and so do their labels. *Mixup* (Zhang et al., 2018): λa + (1 - λ)b, with the label λ of a and 1 - λ of b, λ
# drawn from 0 to 1. *CutMix* (Yun et al., 2019): a rectangle of b is put on a, and λ is the share of a that is left. The loss cannot
# fall below the entropy of such a label, -Σ p ln p, and training accuracy loses its meaning; only unseen images tell.
#
# ![Mixup and CutMix](../docs/_static/diagrams/mixup.svg)
#
# **Before you run**: the training loss with mixup ends far above that without. Is the model worse?

# %%
shown = {}
for kind in ("cutmix", "mixup"):
    x, mixed = mix_pairs(pixels[few[:4]].float() / 255, kind, 1.0, 1.0, torch.Generator().manual_seed(1))
    soft = mixed.soften(classes[few[:4]], 10)
    for image, label in zip(x[:, 0], soft):
        shown[f"{kind}\n" + ", ".join(f"{c}: {label[c]:.2f}" for c in label.nonzero().flatten().tolist())] = image  # fmt: skip
panels(shown, cmap="Greys", vmin=0, vmax=1)
vits |= {kind: [fit(mix=kind, epochs=epochs, seed=s) for s in seeds] for kind in ("mixup", "cutmix")}
ends = {name: np.array([loss_curve(clf) for clf in vits[name]])[..., -1] for name in ("none", "mixup", "cutmix")}  # fmt: skip
accuracy = {name: [accuracy_curve(clf)[1][-1] for clf in vits[name]] for name in ends}
training, unseen = ({name: end[:, i] for name, end in ends.items()} for i in (0, 1))
entropy = -torch.xlogy(soft, soft).sum(1).mean()
answer("soft-labels", training=training, unseen=unseen, accuracy=accuracy, n=len(held), seeds=len(seeds), entropy=entropy)  # fmt: skip

# %% [markdown]
# **Why.** A soft label cannot be met with a loss of 0, so the training loss says nothing about quality. The network may never be fully certain, which acts
# against over-fitting.
#
# **Your turn**: the loss for soft labels, and CutMix's label: how much of the first image is left when a rectangle of the second is put on it?
# What hangs over the edge does not count. *(`soft_loss`)* *(`share_left`)*


# %%
def soft_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """[B, C] and probabilities [B, C] -> the mean of -Σ p log softmax, a single number."""
    ...  # your turn


def share_left(height: int, width: int, top: int, left: int, rows: int, columns: int) -> float:
    """From 0 to 1; the rectangle begins at (top, left) and may reach over any edge."""
    ...  # your turn


check("04", soft_loss=soft_loss)
check("04", share_left=share_left)

# %% [markdown]
# ## A small CNN under the same changes
#
# **Idea.** Locality and shared weights are built into a CNN; a ViT must learn them, and so it is said to gain more from changed images. Both get the same
# six treatments and seeds here ([small_cnn.py](../labs/small_cnn.py) is the CNN). The best treatment of each is chosen on other digits than those of the evaluation:
# the best of six on the same digits would be too good an estimate of itself.
#
# **Before you run**: which of the two is better without augmentation, and which gains more?

# %%
choosing = order[len(few) : len(few) + budget(80, 400)]  # neither learned from nor evaluated on
tried = {
    "ViT": {},
    "small CNN": {},
}  # treatment -> right or not on the digits to choose by and on held: [seeds, n]
for treatment, clfs in vits.items():
    cnns = [fit_cnn(pixels[few], classes[few], treatment, epochs, s) for s in seeds]
    parts = choosing, held
    tried["ViT"][treatment] = [np.array([right(c.predict(images[r]), r) for c in clfs]) for r in parts]
    tried["small CNN"][treatment] = [np.array([right(c.says(pixels[r]), r) for c in cnns]) for r in parts]

# %%
groups({name: {t: h[1].mean() for t, h in found.items()} for name, found in tried.items()}, ylabel="accuracy", ylim=(0.5, 1))  # fmt: skip
chosen = {name: max(found, key=lambda t: found[t][0].mean()) for name, found in tried.items()}
plain = {name: found["none"][1].mean() for name, found in tried.items()}
best = {f"{name}, {chosen[name]}": found[chosen[name]][1].mean() for name, found in tried.items()}
gains = {name: found[chosen[name]][1] - found["none"][1] for name, found in tried.items()}
more = gains["ViT"] - gains["small CNN"]
answer("bias", digits=len(few), seeds=len(seeds), plain=plain, best=best, gains=gains, more=more, n=len(held))

# %% [markdown]
# **Why.** A convolution sees the same stroke at every place with the same weights from the first step. The ViT has to learn from examples what places have in common, and changed images are more
# examples.
#
# ## Where the ViT looks, before and after augmentation
#
# **Idea.** Four ways to ask which patches mattered. The *attention* of [CLS] in the last layer; *rollout*, which follows it through all layers; *gradient × input*, how the logit
# changes with a patch; and *occlusion*, how far the logit falls when a patch is hidden. Only the last one is an experiment on the image.
#
# **Before you run**: will the four agree?

# %%
image = images[held[0]]
for name in ("none", "cutmix"):
    clf = vits[name][0]
    shown = {f"{name}: it says {clf.predict(image[None])[0]}": image[..., 0] / image.max()}
    for method in ("attention", "rollout", "gradient_x_input", "occlusion"):
        scores = explain_input(clf, image, method=method).scores
        shown[method] = scores / np.abs(scores).max()
    panels(shown, cmap="RdBu", vmin=-1, vmax=1)

# %% [markdown]
# **Why.** Attention and rollout show where rows come from, whatever they do to the logit. Gradient and occlusion ask about the logit, for a small change and for a large one.
#
# **Your turn**: rollout (Abnar and Zuidema, 2020): each layer keeps half of a row and reads half by the mean map of its heads; the layers are multiplied. *(`rollout`)*


# %%
def rollout(maps: Tensor) -> Tensor:
    """[L, H, T, T] -> [T, T]; row t: how much of each input row is in row t after the last layer."""
    ...  # your turn


check("04", rollout=rollout)

# %% [markdown]
# Where the library does this: [data/augment.py](../src/glassformer/data/augment.py), [explain/attention.py](../src/glassformer/explain/attention.py), [explain/occlusion.py](../src/glassformer/explain/occlusion.py).
