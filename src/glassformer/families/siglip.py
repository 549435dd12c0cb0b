"""SigLIP's image encoder (Zhai et al., 2023): ViT without [CLS], with an attention-pooling head.

The classifier reads the mean of the patches. A model without a classifier keeps the pooling head, whose
output SigLIP compares with a text's vector. As in ``transformers``, a classifier is saved as ``siglip`` and
an encoder as ``siglip_vision_model``. Fixed-resolution SigLIP 2 checkpoints (not NaFlex) have the same file
format.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import get_section
from glassformer.families import image
from glassformer.families.family import Family
from glassformer.families.settings import rate, read_settings, write_settings
from glassformer.models.image import ImageEncoderConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig

PAIR_MODEL_TYPE = "siglip"
LAYER = "encoder.layers.{i}"
NAMES = NameTable(
    prefix="vision_model.",
    encoder={
        "embeddings.projection": "embeddings.patch_embedding",
        f"{LAYER}.norm1": f"{LAYER}.layer_norm1",
        f"{LAYER}.attention.out": f"{LAYER}.self_attn.out_proj",
        f"{LAYER}.norm2": f"{LAYER}.layer_norm2",
        f"{LAYER}.feed_forward.up": f"{LAYER}.mlp.fc1",
        f"{LAYER}.feed_forward.down": f"{LAYER}.mlp.fc2",
        "encoder.final_norm": "post_layernorm",
        "pooling.attention.out": "head.attention.out_proj",
        "pooling.norm": "head.layernorm",
        "pooling.feed_forward.up": "head.mlp.fc1",
        "pooling.feed_forward.down": "head.mlp.fc2",
    },
    fused={
        f"{LAYER}.attention.qkv": (
            f"{LAYER}.self_attn.q_proj",
            f"{LAYER}.self_attn.k_proj",
            f"{LAYER}.self_attn.v_proj",
        )
    },
    heads={"head.out": "classifier"},
    full_names={
        "embeddings.positions": "embeddings.position_embedding.weight",
        "pooling.query": "head.probe",
        "pooling.attention.qkv.weight": "head.attention.in_proj_weight",
        "pooling.attention.qkv.bias": "head.attention.in_proj_bias",
    },
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "text_model.": "the text encoder",
        "logit_scale": "scale of image-text similarities",
        "logit_bias": "bias of image-text similarities",
    },
)


from_hub = partial(image.from_hub, names=NAMES)
to_hub = partial(image.to_hub, names=NAMES, with_axes=("pooling.query",))
SIZES = {  # published files contain only the values that differ from these defaults
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
DROPOUT = rate("attention_dropout", "encoder.attention_dropout", default=0.0)
SETTINGS = (*image.image_settings(1e-6, 16, SIZES), DROPOUT)


def read(settings: dict[str, Any], where: str) -> ImageEncoderConfig:
    """Our config from a ``config.json`` of SigLIP's image encoder, or of both encoders."""
    is_pair = settings.get("model_type") == PAIR_MODEL_TYPE
    section = get_section(settings, "vision_config", where) if is_pair else settings
    config = read_settings(SETTINGS, siglip(), {"hidden_act": "gelu_pytorch_tanh"} | section, where)
    return image.check_square(config, where)


def write(config: ImageEncoderConfig) -> dict[str, Any]:
    vision_settings = write_settings(SETTINGS, config) | {"vision_use_head": config.pooling == "multihead"}
    return hub_config(vision_settings, PAIR_MODEL_TYPE, config, SIGLIP)


def hub_config(
    vision_settings: dict[str, Any], pair_type: str, config: ImageEncoderConfig, family: Family
) -> dict[str, Any]:
    """The contents of ``config.json``; for a classifier, the settings are its section ``vision_config``.

    Args:
        pair_type: ``model_type`` of the model with both encoders.
    """
    vision_settings["model_type"] = f"{pair_type}_vision_model"
    assert family.hub is not None
    is_nested = config.head is not None and family.hub.has_class(config)
    return {"model_type": pair_type, "vision_config": vision_settings} if is_nested else vision_settings


def siglip(
    image_size: tuple[int, ...] = (224, 224),
    patch_size: tuple[int, ...] = (16, 16),
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    **options,
) -> ImageEncoderConfig:
    """SigLIP-B/16: L12 H768 A12, 86 M parameters without the pooling head."""
    embedding = PatchConfig(d_model, image_size, patch_size, class_token=False)
    encoder = EncoderConfig(
        d_model, num_layers, num_heads, d_ff, norm="pre", activation="gelu_tanh", eps=1e-6, final_norm=True
    )
    return ImageEncoderConfig(embedding, encoder, pooling=options.pop("pooling", None), **options)


SIGLIP = image.image_family(
    PAIR_MODEL_TYPE,
    "Siglip",
    siglip,
    (read, write, from_hub, to_hub),
    NAMES,
    pooling="mean",
    more_classes={None: "SiglipVisionModel"},
    examples=("google/siglip-base-patch16-224", "google/siglip2-base-patch16-224"),
    aliases=("siglip_vision_model",),
)
