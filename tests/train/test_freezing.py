"""Which weights a fit changes: the head, the last layers, all of them, or none of the encoder."""

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.train.config import ClassifierFitConfig as FitConfig
from glassformer.train.freezing import freeze


def learning(layers: int = 2, **settings) -> set[str]:
    """The parts that learn, by their first names."""
    torch.manual_seed(3)
    model = Bert(bert(17, 6, layers, 2, 7, 11, head="classification"))
    freeze(model, FitConfig(**settings))
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    return {".".join(n.split(".")[:3]) if n.startswith("encoder.layers") else n.split(".")[0] for n in names}


def test_the_head_and_the_last_layers_learn():
    top, all_layers = {"pooling", "head"}, {"encoder.layers.0", "encoder.layers.1"}
    assert learning() == learning(train_layers=2) == top | all_layers | {"embeddings"}
    assert learning(train_layers=1) == top | {"encoder.layers.1"}
    assert learning(train_layers=0) == top
    assert learning(train_layers=0, unfreeze_every=1) == learning()  # opened as training goes
    assert learning(1, train_layers=1) == top | {"encoder.layers.0", "embeddings"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train_layers": 3}, "train_layers = 3, but the encoder has 2 layers"),
        ({"unfreeze_every": 1}, "unfreeze_every needs train_layers"),
        ({"lora_rank": 2, "train_layers": 0}, "lora_rank already freezes the encoder"),
        ({"lora_rank": 2, "unfreeze_every": 1}, "lora_rank already freezes the encoder"),
        ({"lora_rank": 7}, "lora_rank = 7 is not from 1 to the width 6"),
    ],
)
def test_settings_that_exclude_each_other(settings, said):
    with pytest.raises(ConfigError, match=said):
        learning(**settings)
