"""The questions that the labs answer, each with figures that its cell computes."""

QUESTIONS = {
    # 1, attention from the inside
    "shapes": "Which shapes have Q, K, V and the weights?",
    "scale": "What happens without the √d_k?",
    "mask": "What does a mask change, and what does it leave?",
    "scorers": "Dot, multiplicative or additive: what differs?",
    "shift": "Is PE(p + k) a linear map of PE(p)?",
    "convolution": "Can self-attention compute a convolution?",
    # 2, words to vectors to a mini-Transformer
    "window": "What does the window do to the pairs?",
    "negatives": "Why does negative sampling steady the training, and what does k do to the gradient?",
    "norms": "How long are the vectors before and after?",
    "saturation": "Does the loss saturate?",
    "rates": "Two learning rates: which is there first?",
    "vector-overfitting": "Do the vectors over-fit, and what holds it back?",
    "vector-metric": "Which metric judges word vectors?",
    "positions": "Sinusoidal or learned positions?",
    "mini": "Does the mini-Transformer see the country, or any European word?",
    # 3, sentiment
    "vocabulary": "How many words are left after filtering?",
    "unknown": "What happens to an unknown word?",
    "case": "What do case and punctuation do to the number of tokens?",
    "padding": "Left or right padding: does it matter under a mask?",
    "pooling": "Which pooling?",
    "tokens": "Sub-words or words?",
    "accumulation": "Batch size, and the same batch in parts?",
    "tuning": "What does tuning the learning rate give?",
    "scratch": "From scratch or pre-trained?",
    "truncation": "What does cutting long texts cost?",
    "specialists": "Do heads specialise (negation, agreement, entities)?",
    "trust": "Does attention explain the prediction?",
    "synonyms": "How stable are the maps when a word becomes its synonym?",
    # 4, pictures as sequences
    "tokens-197": "Where does 197 come from?",
    "pooler": "Pooler output or raw [CLS]?",
    "wrong-head": "Is a head of the wrong size caught?",
    "head": "Linear or MLP head: which converges faster, which over-fits?",
    "head-dropout": "Dropout in the head: frozen against partly unfrozen backbone?",
    "overfitting": "When does over-fitting begin?",
    "ladder": "At which strength of augmentation does accuracy fall?",
    "bias": "Do ViTs gain more from augmentation on small data than a CNN, and why?",
    "soft-labels": "Mixup and CutMix: what becomes of loss and metrics?",
    # 5, sequence to sequence
    "bottleneck": "What does one thought vector cost as sentences grow?",
    "alignment": "Does attention find the alignment?",
    "beam": "Greedy or beam search?",
    # 6, pre-training BERT
    "masking": "What becomes of the 15 %?",
    "learned": "What does a masked model learn from plain text?",
    "transfer": "Does pre-training help when labels are few?",
    # 7, text against images
    "modalities": "Text against images: what reaches the encoder?",
    "adaptation": "How does self-attention adapt to text and to images?",
    "cost": "What does attention cost as the length grows?",
    "cheaper": "What reduces that cost?",
    "hunger": "How hungry for data are they?",
}
