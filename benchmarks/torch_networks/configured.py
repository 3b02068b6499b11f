"""Architectures of the package ``transformers``, by their configurations: one row each, weights are random."""

import importlib
from typing import Any

import torch
from torch import nn

__all__ = ["CONFIGURED", "Configured"]

WIDTH, VOCABULARY = 64, 300
_LAYERS: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 4 * WIDTH,
}
_MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = _LAYERS | _MARKS | {"vocab_size": VOCABULARY, "max_position_embeddings": 128}
_GROUPED = _TEXT | {"num_key_value_heads": 2, "head_dim": 16}
_PATCHES = _LAYERS | {"image_size": 64, "patch_size": 8}
_STATE: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2}
_WIDE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH,
}
_STAGES: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}
_SERIES: dict[str, Any] = {
    "prediction_length": 12,
    "context_length": 24,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
}

# by family and kind of input: name, class, configuration
_ROWS: dict[tuple[str, str], tuple[tuple[str, str, dict[str, Any]], ...]] = {
    ("encoder", "tokens"): (
        ("bert", "BertModel", _TEXT),
        ("roberta", "RobertaModel", _TEXT),
        ("albert", "AlbertModel", _TEXT | dict(embedding_size=32)),
        (
            "deberta",
            "DebertaV2Model",
            _TEXT | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16, share_att_key=True),
        ),
        ("mpnet", "MPNetModel", _TEXT),
        ("modernbert", "ModernBertModel", _TEXT | dict(local_attention=16)),
        ("xlnet", "XLNetModel", dict(vocab_size=VOCABULARY, d_model=WIDTH, n_layer=2, n_head=4, d_inner=4 * WIDTH)),
        ("fnet", "FNetModel", _TEXT),
        ("convbert", "ConvBertModel", _TEXT | dict(embedding_size=32)),
    ),
    ("decoder", "tokens"): (
        ("gpt2", "GPT2LMHeadModel", dict(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=128)),
        ("gpt_neox", "GPTNeoXForCausalLM", _TEXT),
        ("opt", "OPTForCausalLM", _TEXT | dict(ffn_dim=4 * WIDTH, word_embed_proj_dim=WIDTH)),
        ("llama", "LlamaForCausalLM", _GROUPED),
        ("mistral", "MistralForCausalLM", _GROUPED | dict(sliding_window=16)),
        ("gemma2", "Gemma2ForCausalLM", _GROUPED | dict(sliding_window=16)),
        ("qwen3", "Qwen3ForCausalLM", _GROUPED),
        ("phi3", "Phi3ForCausalLM", _GROUPED),
        ("bloom", "BloomForCausalLM", dict(vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=2, n_head=4)),
    ),
    ("encoder and decoder", "two texts"): (
        (
            "t5",
            "T5Model",
            dict(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=16, d_ff=4 * WIDTH, num_layers=2, num_heads=4),
        ),
        ("bart", "BartModel", _WIDE | dict(max_position_embeddings=128)),
    ),
    ("mixture of experts", "tokens"): (
        ("mixtral", "MixtralForCausalLM", _GROUPED | dict(num_local_experts=4)),
        (
            "qwen2_moe",
            "Qwen2MoeForCausalLM",
            _GROUPED
            | dict(
                num_experts=4, num_experts_per_tok=2, moe_intermediate_size=WIDTH, shared_expert_intermediate_size=WIDTH
            ),
        ),
    ),
    ("state space", "tokens"): (
        ("mamba", "MambaModel", _STATE | dict(state_size=8)),
        ("mamba2", "Mamba2Model", _STATE | dict(state_size=16, num_heads=8, head_dim=16, n_groups=1, chunk_size=16)),
        ("rwkv", "RwkvModel", _STATE | dict(attention_hidden_size=64)),
        (
            "recurrent_gemma",
            "RecurrentGemmaForCausalLM",
            _GROUPED | dict(num_hidden_layers=3, lru_width=WIDTH, attention_window_size=16),
        ),
    ),
    ("vision transformer", "image"): (
        ("vit", "ViTModel", _PATCHES),
        (
            "swin",
            "SwinModel",
            dict(image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4),
        ),
        (
            "segformer",
            "SegformerModel",
            dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4]),
        ),
        ("beit", "BeitModel", _PATCHES),
        (
            "levit",
            "LevitModel",
            dict(image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1, 1, 1]),
        ),
        (
            "mobilevit",
            "MobileViTModel",
            dict(image_size=64, hidden_sizes=[32, 48, 64], neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 128]),
        ),
    ),
    ("vision and language", "image"): (("clip", "CLIPVisionModel", _PATCHES),),
    ("convolutions", "image"): (
        ("resnet", "ResNetModel", _STAGES),
        ("regnet", "RegNetModel", _STAGES | dict(groups_width=16)),
        ("convnext", "ConvNextModel", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])),
        ("mobilenet_v2", "MobileNetV2Model", dict(depth_multiplier=0.35, image_size=64)),
        (
            "efficientnet",
            "EfficientNetModel",
            dict(image_size=64, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320),
        ),
        ("poolformer", "PoolFormerModel", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])),
    ),
    ("detection", "image"): (
        ("yolos", "YolosForObjectDetection", _PATCHES | dict(image_size=[64, 64], num_detection_tokens=10)),
    ),
    ("speech", "wave"): (
        (
            "wav2vec2",
            "Wav2Vec2Model",
            _LAYERS
            | dict(
                conv_dim=[32, 32, 32],
                conv_stride=[5, 2, 2],
                conv_kernel=[10, 3, 3],
                num_feat_extract_layers=3,
                num_conv_pos_embeddings=16,
                num_conv_pos_embedding_groups=4,
            ),
        ),
    ),
    ("speech", "spectrogram"): (
        (
            "whisper",
            "WhisperModel",
            _WIDE
            | dict(
                num_mel_bins=20, max_source_positions=50, max_target_positions=60, **_MARKS, decoder_start_token_id=1
            ),
        ),
    ),
    ("speech", "bands"): (("audio_spectrogram", "ASTModel", _PATCHES | dict(num_mel_bins=32, max_length=64)),),
    ("time series", "series"): (
        (
            "patchtst",
            "PatchTSTForPrediction",
            dict(
                num_input_channels=3,
                context_length=48,
                patch_length=8,
                patch_stride=8,
                d_model=64,
                num_hidden_layers=2,
                ffn_dim=128,
                prediction_length=12,
                loss="mse",
            ),
        ),
    ),
    ("time series", "history"): (
        ("time_series_transformer", "TimeSeriesTransformerModel", _SERIES),
        # halves the text, of which its own mask knows nothing when traced
        ("informer", "InformerModel", _SERIES | dict(sampling_factor=1, distil=False)),
        ("autoformer", "AutoformerModel", _SERIES | dict(moving_average=5)),
    ),
}
_RESULTS = {"YolosForObjectDetection": "pred_boxes", "PatchTSTForPrediction": "prediction_outputs"}
CONFIGURED: list[tuple[str, str, str, str, Any, dict[str, Any]]] = [
    (name, family, made, kind, _RESULTS.get(made, 0), config)
    for (family, kind), models in _ROWS.items()
    for name, made, config in models
]


class Configured(nn.Module):
    """A model of ``transformers`` whose call takes tensors and returns one."""

    def __init__(self, name: str, config: dict[str, Any], names: tuple[str, ...], result: Any) -> None:
        super().__init__()
        made = getattr(importlib.import_module("transformers"), name)  # the extra 'bench'
        self.names, self.result = names, result
        self.model = made(made.config_class(**config))

    def forward(self, *tensors: Any) -> torch.Tensor:
        """The result that is compared."""
        fixed = {} if type(self.model).__name__.startswith(_WITHOUT_CACHE) else {"use_cache": False}
        return self.model(**dict(zip(self.names, tensors, strict=True)), **fixed)[self.result]


_WITHOUT_CACHE = (
    *"Bert Roberta Albert Deberta MPNet ModernBert XLNet FNet ConvBert ViT Swin Segf Beit Levit MobileV CLIP".split(),
    *"ResNet RegNet ConvNext MobileN Effici PoolF Yolos Wav2 AST PatchTST".split(),
)


def inputs(kind: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Random inputs of a kind, by the model's names for them."""

    def tokens(n: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (batch, n))

    made = {
        "tokens": lambda: {"input_ids": tokens(length)},
        "two texts": lambda: {"input_ids": tokens(length), "decoder_input_ids": tokens(length + 3)},
        "image": lambda: {"pixel_values": torch.randn(batch, 3, 64, 64)},
        "wave": lambda: {"input_values": torch.randn(batch, 40 * length)},
        "spectrogram": lambda: {"input_features": torch.randn(batch, 20, 100), "decoder_input_ids": tokens(length)},
        "bands": lambda: {"input_values": torch.randn(batch, 64, 32)},
        "series": lambda: {"past_values": torch.randn(batch, 48, 3)},
        "history": lambda: {
            "past_values": torch.randn(batch, 27),
            "past_time_features": torch.randn(batch, 27, 2),
            "past_observed_mask": torch.ones(batch, 27),
            "future_values": torch.randn(batch, 12),
            "future_time_features": torch.randn(batch, 12, 2),
        },
    }
    return made[kind]()
