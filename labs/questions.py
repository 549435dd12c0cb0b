"""The questions that the labs ask, and how their answers read: the values come from the cells that measure them.

``lab.Sentence`` fills the templates: ``{scores:.1%}`` of a dict is "first: 71.6%; mean: 72.0%", of several values their mean and range.
"""

QUESTIONS = {
    # 0, a Transformer in 100 lines
    "padding-share": "How much of a padded batch is padding?",
    "from-scratch": "What does a Transformer of 100 lines reach, and does it need the order of the words?",
    "exchange": "Do the library's parts compute the same as ours?",
    # 1, attention from the inside
    "shapes": "Which shapes have Q, K, V and the weights?",
    "scale": "What happens without the √d_k?",
    "mask": "What does a mask change, and what does it leave?",
    "shared": "Can the keys be the values (K = V)?",
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
    "vector-metric": "Which metric evaluates word vectors?",
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
    "specialists": "Do heads specialize (negation, agreement, entities)?",
    "trust": "Does attention explain the prediction?",
    "synonyms": "How stable are the maps when a word becomes its synonym?",
    # 4, images as sequences
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
    "off-diagonal": "Why is dot attention off the diagonal?",
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
    "initial": "How much hangs on the first weights?",
    # 8, fine-tune and report
    "checkpoint": "What does a small pre-trained checkpoint hold?",
    "fine-tuning": "Fine-tuned, frozen or TF-IDF, with few labels?",
    "image-fine-tuning": "A head on a frozen image encoder, or its last layers too?",
    "reload": "Does a saved model give the same predictions?",
}

TEMPLATES = {
    # 0, a Transformer in 100 lines
    "padding-share": "{share:.0%} of the {ids:,} ids are padding when {n:,} reviews are cut at {longest} tokens, and {uncut:.0%} if none is cut: {cut:.0%} are longer, one has {most:,} tokens. {unknown:.1%} are [UNK], of a vocabulary of {words:,}.",
    "from-scratch": "{ours:.1%} of {n:,} unseen reviews are right ({between}; 95 % interval, one training of {seconds:.0f} s). TF-IDF has {first:.1%} on the same first {longest} tokens and {whole:.1%} on whole reviews, always one class {one_class:.1%}. With the words shuffled the same model has {mixed:.1%}.",
    "exchange": "Yes: attention, heads, layer and the logits of the whole model are equal within 1e-5; after {steps} steps of training from equal weights the logits differ by {drift:.0e}, the rounding of other orders of summation. In one call the library has {library:.1%} after {took:.0f} s, our loop {ours:.1%} after {seconds:.0f} s with evaluations (one training each; another vocabulary, other first weights, lr 3e-3 instead of 1e-3).",
    # 1, attention from the inside
    "shapes": "With B={B}, T={T}, S={S}, D={D}, H={H}: Q {q}, K {k}, V {v}, weights {w}; each row of weights sums to 1 (off by {off:.0e} at most).",
    "scale": "At width {width} the entropy is {without:.2f} without the division and {divided:.2f} with it; the mean gradient of the scores is {times:.0f} times smaller without it.",
    "mask": "Row 2 of 5 had {later:.0%} of its weight on later tokens and has 0 % under the causal mask; the rest keeps its proportions, and the last row does not change ({last:.0e}).",
    "shared": "With one head of {D} nothing is lost: queries that take W_K over give the same output (largest difference {off:.0e}) with {fewer} fewer numbers. With two heads the same W_V can hold only part of a score: the nearest leaves {gap:.0%} of it out, so the values must give way.",
    "scorers": "At width {width} they have so many parameters ({numbers}). The additive scorer also keeps a hidden layer for every pair, {memory} numbers for 6×6 tokens where the others keep 36.",
    "shift": "Yes: one {width}×{width} matrix of rotations moves all {count} positions by {steps}, off by {off:.0e} at most (the table is in fp32).",
    "convolution": "Yes: nine heads reproduce a random 3×3 kernel of 3 to 4 channels at all {size}×{size} places, off by {error:.0e} at most; the layer has {numbers} numbers where the convolution has {kernel}. Heads that look less sharply (β = 0.5) are off by up to {blurred:.1f}.",
    # 2, words to vectors to a mini-Transformer
    "window": "More pairs per word ({per_word:.1f}), more pairs of a country and its capital ({known}), and about the same share of function words ({grammar:.0%}), counted in {count:,} sentences.",
    "negatives": "Without negatives the vectors collapse (mean cosine {collapse:.2f}). From k = 1 to k = 20 the negatives' push on the centers grows {grows:.1f} times, and its noise falls relative to its size ({spread:.2f}; one training for each k; 20 draws).",
    "norms": "Short before ({before:.3f}) and long after ({after:.2f}), in one training at lr {lr}.",
    "saturation": "At lr {lr} the loss is {first:.2f} at first, {half:.2f} after half of the steps and {last:.2f} at the end. It stays above 0: which of many contexts a word will have cannot be known (one training).",
    "rates": "90 % of the fall (loss {goal:.2f}) is reached at these of {total} steps: {reached} (one training each; None: not reached).",
    "vector-overfitting": "On 200 sentences the unseen loss without a penalty is lowest in epoch {epoch} ({lowest:.2f}). After {epochs} epochs the losses are: {last:.2f}. Means of {seeds} seeds, pairs of 500 unseen sentences.",
    "vector-metric": "A test on the task that they are for, here analogies. The loss is the same ({losses:.3f}), the share of {count} capitals that are found is not ({solved:.0%}; {seeds} seeds). The loss does not see the difference.",
    "mini": "The country: {accuracy:.1%} of {n} unseen sentences are right, and {trapped:.1%} of {traps} in which a European city, language or currency is next to another country ({seeds} seeds; by one training the true share of the first is {between}).",
    "positions": "Where the order decides, either kind does after the last epoch ({last:.1%}) and after the first ({first:.1%}), as measured with {seeds} seeds on {n} unseen sentences. Without positions a Transformer sees a bag of words.",
    # 3, sentiment
    "vocabulary": "Of {n:,} reviews, distinct words: {sizes:,}. So {rare:.0%} of the words are seen fewer than 5 times.",
    "unknown": "A word vocabulary turns it into [UNK], sub-words cut it into known pieces. [UNK] among the tokens of {n:,} unseen reviews: {unknown:.2%}. Sub-words need {times:.2f} times the tokens.",
    "case": "Tokens per review: {length:.1f}. Distinct words: {distinct:,} ({n:,} reviews).",
    "padding": "Under a mask the logits differ by {masked:.0e}. Attended as if it were text, {pads} [PAD] move them by {right:.2f} on the right and {left:.2f} on the left, where [CLS] is no longer first.",
    "pooling": "{scores:.1%}, of {n:,} reviews (± {wide:.1%} each), after as many epochs for all, with one seed.",
    "tokens": "{scores:.1%}, with mean pooling; by chance their difference may be up to ± {wide:.1%}.",
    "accumulation": "The gradient of 32 reviews and that of four parts of 8 differ by {off:.0e} of its length: accumulation is the large batch. Trained ({ends:.1%}), with four times the updates in batches of 8 ({n:,} reviews, ± {wide:.1%} each, one seed).",
    "tuning": "By learning rate: {rates:.1%}. {best} is best; at an end of the list, try further ({n:,} reviews, ± {wide:.1%} each, one seed). Choose on validation data: the best of several is too good an estimate of itself.",
    "scratch": "On {n} reviews, {longest} tokens of each: {scratch:.1%} from scratch, {reached:.1%} {what} (one seed, {n} test reviews, ± {spread:.1%} at most for each). Trained on 15,000 to 25,000 reviews (result files, means over their seeds): {full:.2%}. On 30,000 Vietnamese ones: {foreign:.2%}.",
    "truncation": "Test accuracy on {n} reviews by tokens read: {reached:.1%} (± {spread:.1%} at most for each, one seed). About {cut:.0%} of the reviews are longer than the longest of these.",
    "specialists": "The strongest head of each kind puts more weight on the partner than on places as far away ({own:+.2f}), on the partners of another kind at most {others:+.2f} more (each ± {wide:.2f} at most, 95 %). Chosen among {heads} heads on half of {count} generated sentences of each kind, evaluated on the other half.",
    "trust": "Not by itself: in {misled} of {n} beginnings of reviews (25 words) the most attended word can go while a word outside the most attended third flips the prediction; the share of such texts is {between}. In {ours} of {written} sentences written for this lab it happens too.",
    "synonyms": "Rank correlation of the scores ({correlation:.3f}) and share of texts that keep their label ({label_kept:.0%}), over the beginnings of reviews that have a word of the list ({n}); 95 % intervals.",
    # 4, images as sequences
    "tokens-197": "(224 / 16)² = {patches} patches and 1 [CLS]: the layer makes {rows} rows of {width} for each image, {config} by its config.",
    "pooler": "{accuracy:.1%}, of {n} digits, {seeds} seeds. Raw [CLS] minus pooler: {less:points}.",
    "wrong-head": "Yes, with both sizes named: “{error}”",
    "head": "{goal:.0%} of the unseen digits are right for the first time in epoch ({epochs}). At the end: accuracy ({end:.1%}), training loss ({training:.2f}), unseen loss ({unseen:.2f}; its lowest was {lowest:.2f}). Means of {seeds} seeds; {digits} training digits, {n} unseen.",
    "head-dropout": "{grid:.1%} (fewer epochs than above, one rate for all; {seeds} seeds, {n} digits, by whose draw 75 % may be {between}).",
    "overfitting": "With {digits} digits the unseen loss is lowest in epoch {epoch} of {epochs} ({lowest:.2f}) and {end:.2f} at the end, that of training {training:.3f}. The unseen accuracy is {before:.1%} there and {after:.1%} at the end (means of {seeds} seeds, {n} unseen digits).",
    "ladder": "{vit:.1%} ({n} digits, means of {seeds} seeds). Minus none, on the same digits: {less:points}. An interval below 0 shows a fall.",
    "soft-labels": "Training loss ({training:.2f}), unseen loss ({unseen:.2f}), unseen accuracy ({accuracy:.1%}); {n} digits, {seeds} seeds. The soft labels of the last four images above have an entropy of {entropy:.2f} nats, below which their loss cannot fall.",
    "bias": "On {digits} digits, {seeds} seeds: without augmentation ({plain:.1%}), with the best treatment, chosen on other digits ({best:.1%}); the gains ({gains:points}). The ViT's gain minus the CNN's: {more:points} on {n} digits; an interval that holds 0 shows no difference.",
    # 5, sequence to sequence
    "bottleneck": "Words right at {shortest} words ({short:.0%}) and at {longest} ({long:.0%}); the thought vector has {width} numbers ({seeds} seeds, {n} sentences of each length).",
    "alignment": "The most attended source word is the right one ({exact:.0%} of the target words), or it is the right one or the one next to it ({near:.0%}); with dot it is the one just translated for {last:.0%} ({n} sentences, {seeds} seeds).",
    "off-diagonal": "From the state at a word a linear classifier reads the word before it ({before:.0%}), the word itself ({itself:.0%}) and the word after it ({after:.0%}); chance is {chance:.0%} ({n} sentences, {seeds} seeds).",
    "beam": "Of {n} sentences right in full: {search:.0%}. Seconds: {seconds:.2f} ({seeds} seeds; by the draw of sentences a share of one half may be {between}).",
    # 6, pre-training BERT
    "masking": "{chosen:.1%} of {words:,} words are chosen ({share:.1%}). “As it was” includes random draws that hit the word itself.",
    "learned": "Masked words of unseen sentences: {first:.0%} right after the first epoch, {last:.0%} after {epochs} (the most frequent word alone: {frequent:.0%}). Capitals whose country it names, of {ten}: {known}; always the same country gives 1 (one training, {n} unseen sentences).",
    "transfer": "Accuracy from scratch ({scratch:.0%}) and pre-trained ({trained:.0%}). The gain on the same sentences is: {gains:points}. An interval that holds 0 shows no gain (the same encoder, the same steps; {seeds} seeds, {n:,} unseen sentences, not corrected for several comparisons).",
    # 7, text against images
    "modalities": "Rows of one width, and lengths: {shortest} to {longest} tokens for sentences, always {patches} rows for images. The encoder's class is the same; the embedding holds {text:.0%} of the text model's parameters (a table of {words} words) and {image:.0%} of the image model's (one matrix for all patches).",
    "adaptation": "On text ({text:.2f}), on images ({images:.2f}): {seeds} seeds, {n} reviews of 128 tokens or images of 65 rows, 95 % intervals. Movement on text minus that on images is between {more[0]:+.2f} and {more[1]:+.2f} (Welch's t, p = {p:.3f}, not corrected for three measures).",
    "cost": "From length {shortest} to {longest} the price of a token goes from {first:.2f} to {last:.2f} µs. The price of a sequence grows with the length to the power {early:.1f} at first and {late:.1f} at the end: the arithmetic alone comes to at most 2; the rest is probably memory, for the map of one head has {map:,} numbers.",
    "cheaper": "Seeing neighbors only, where the window is narrow compared with the length, or no softmax. At length {length}, in µs per token of attention alone: {last:.2f}. A training step of a whole encoder on the longest texts above, in ms: {encoder:.0f}. In a recipe: `attention = local` or `linear`.",
    "hunger": "With {few[0]} sentences or {few[1]} digits: {first:.0%}. With {many[0]} sentences or {many[1]} digits: {last:.0%}. {seeds} seeds, {n} unseen sentences, {m} unseen digits.",
    "initial": "Accuracy by spread: {reached:.0%}. Learned from 400 digits, {seeds} seeds, {n} unseen digits.",
    # 8, fine-tune and report
    "checkpoint": "{whole:,} parameters: {table:.0%} are the table of {words:,} tokens, {layers:.0%} the {count} layers.",
    "fine-tuning": "{reviews} reviews, {epochs} epochs at {best:g} (chosen on {chosen_on} of them), {seconds:.0f} s: {tuned:.1%} ({between}); frozen {frozen:.1%}, TF-IDF {plain:.1%} of {n:,} unseen reviews (one seed). The rates, on validation reviews: {choice:.0%}.",
    "image-fine-tuning": "{images} images of {source}: {last:.1%}; logistic regression on 16 × 16 pixels {plain:.1%} of {n} unseen images, by whose draw 50 % may be {between} (one seed; weights: {weights}).",
    "reload": "The loaded model's probabilities differ by {off:.0e}; the folder has {files} files, {megabytes:.0f} MB.",
}
