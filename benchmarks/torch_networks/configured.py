"""Architectures of the package ``transformers``, by their configurations: one row each, weights are random."""

import importlib
from typing import Any

import torch
from torch import nn

__all__ = ["CONFIGURED", "Configured"]

WIDTH, VOCABULARY = 64, 300
_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 4 * WIDTH,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _TEXT | {"num_key_value_heads": 2, "head_dim": 16}
_PATCHES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 4 * WIDTH,
    "image_size": 64,
    "patch_size": 8,
}
_WIDE = {"encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH}
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

# name, family, class, kind of input, which result, configuration
CONFIGURED: list[tuple[str, str, str, str, Any, dict[str, Any]]] = [
    ("bert", "encoder", "BertModel", "tokens", 0, _TEXT),
    ("roberta", "encoder", "RobertaModel", "tokens", 0, _TEXT),
    ("albert", "encoder", "AlbertModel", "tokens", 0, _TEXT | {"embedding_size": 32}),
    (
        "deberta",
        "encoder",
        "DebertaV2Model",
        "tokens",
        0,
        _TEXT
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16, "share_att_key": True},
    ),
    ("mpnet", "encoder", "MPNetModel", "tokens", 0, _TEXT),
    ("modernbert", "encoder", "ModernBertModel", "tokens", 0, _TEXT | {"local_attention": 16}),
    (
        "xlnet",
        "encoder",
        "XLNetModel",
        "tokens",
        0,
        {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layer": 2, "n_head": 4, "d_inner": 4 * WIDTH},
    ),
    ("fnet", "encoder", "FNetModel", "tokens", 0, _TEXT),
    ("convbert", "encoder", "ConvBertModel", "tokens", 0, _TEXT | {"embedding_size": 32}),
    (
        "gpt2",
        "decoder",
        "GPT2LMHeadModel",
        "tokens",
        0,
        {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 128},
    ),
    ("gpt_neox", "decoder", "GPTNeoXForCausalLM", "tokens", 0, _TEXT),
    ("opt", "decoder", "OPTForCausalLM", "tokens", 0, _TEXT | {"ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH}),
    ("llama", "decoder", "LlamaForCausalLM", "tokens", 0, _GROUPED),
    ("mistral", "decoder", "MistralForCausalLM", "tokens", 0, _GROUPED | {"sliding_window": 16}),
    ("gemma2", "decoder", "Gemma2ForCausalLM", "tokens", 0, _GROUPED | {"sliding_window": 16}),
    ("qwen3", "decoder", "Qwen3ForCausalLM", "tokens", 0, _GROUPED),
    ("phi3", "decoder", "Phi3ForCausalLM", "tokens", 0, _GROUPED),
    (
        "bloom",
        "decoder",
        "BloomForCausalLM",
        "tokens",
        0,
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2, "n_head": 4},
    ),
    (
        "t5",
        "encoder and decoder",
        "T5Model",
        "two texts",
        0,
        {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 16, "d_ff": 4 * WIDTH, "num_layers": 2, "num_heads": 4},
    ),
    (
        "bart",
        "encoder and decoder",
        "BartModel",
        "two texts",
        0,
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            **_WIDE,
            "max_position_embeddings": 128,
        },
    ),
    ("mixtral", "mixture of experts", "MixtralForCausalLM", "tokens", 0, _GROUPED | {"num_local_experts": 4}),
    (
        "qwen2_moe",
        "mixture of experts",
        "Qwen2MoeForCausalLM",
        "tokens",
        0,
        _GROUPED
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": WIDTH,
            "shared_expert_intermediate_size": WIDTH,
        },
    ),
    (
        "mamba",
        "state space",
        "MambaModel",
        "tokens",
        0,
        {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
    ),
    (
        "mamba2",
        "state space",
        "Mamba2Model",
        "tokens",
        0,
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "state_size": 16,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 1,
            "chunk_size": 16,
        },
    ),
    (
        "rwkv",
        "state space",
        "RwkvModel",
        "tokens",
        0,
        {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "attention_hidden_size": 64},
    ),
    (
        "recurrent_gemma",
        "state space",
        "RecurrentGemmaForCausalLM",
        "tokens",
        0,
        _GROUPED | {"num_hidden_layers": 3, "lru_width": WIDTH, "attention_window_size": 16},
    ),
    ("vit", "vision transformer", "ViTModel", "image", 0, _PATCHES),
    (
        "swin",
        "vision transformer",
        "SwinModel",
        "image",
        0,
        {"image_size": 64, "patch_size": 4, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    (
        "segformer",
        "vision transformer",
        "SegformerModel",
        "image",
        0,
        {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "num_attention_heads": [1, 2, 3, 4]},
    ),
    ("beit", "vision transformer", "BeitModel", "image", 0, _PATCHES),
    (
        "levit",
        "vision transformer",
        "LevitModel",
        "image",
        0,
        {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1]},
    ),
    (
        "mobilevit",
        "vision transformer",
        "MobileViTModel",
        "image",
        0,
        {"image_size": 64, "hidden_sizes": [32, 48, 64], "neck_hidden_sizes": [8, 16, 24, 32, 48, 64, 128]},
    ),
    ("clip", "vision and language", "CLIPVisionModel", "image", 0, _PATCHES),
    ("resnet", "convolutions", "ResNetModel", "image", 0, _STAGES),
    ("regnet", "convolutions", "RegNetModel", "image", 0, _STAGES | {"groups_width": 16}),
    (
        "convnext",
        "convolutions",
        "ConvNextModel",
        "image",
        0,
        {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
    ),
    ("mobilenet_v2", "convolutions", "MobileNetV2Model", "image", 0, {"depth_multiplier": 0.35, "image_size": 64}),
    (
        "efficientnet",
        "convolutions",
        "EfficientNetModel",
        "image",
        0,
        {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
    ),
    (
        "poolformer",
        "convolutions",
        "PoolFormerModel",
        "image",
        0,
        {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
    ),
    (
        "yolos",
        "detection",
        "YolosForObjectDetection",
        "image",
        "pred_boxes",
        _PATCHES | {"image_size": [64, 64], "num_detection_tokens": 10},
    ),
    (
        "wav2vec2",
        "speech",
        "Wav2Vec2Model",
        "wave",
        0,
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 4 * WIDTH,
            "conv_dim": [32, 32, 32],
            "conv_stride": [5, 2, 2],
            "conv_kernel": [10, 3, 3],
            "num_feat_extract_layers": 3,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
    ),
    (
        "whisper",
        "speech",
        "WhisperModel",
        "spectrogram",
        0,
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            **_WIDE,
            "num_mel_bins": 20,
            "max_source_positions": 50,
            "max_target_positions": 60,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
    ("audio_spectrogram", "speech", "ASTModel", "bands", 0, _PATCHES | {"num_mel_bins": 32, "max_length": 64}),
    (
        "patchtst",
        "time series",
        "PatchTSTForPrediction",
        "series",
        "prediction_outputs",
        {
            "num_input_channels": 3,
            "context_length": 48,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 64,
            "num_hidden_layers": 2,
            "ffn_dim": 128,
            "prediction_length": 12,
            "loss": "mse",
        },
    ),
    ("time_series_transformer", "time series", "TimeSeriesTransformerModel", "history", 0, _SERIES),
    (
        "informer",
        "time series",
        "InformerModel",
        "history",
        0,
        _SERIES | {"sampling_factor": 1, "distil": False},
    ),  # halves the text, of which its own mask knows nothing when traced
    ("autoformer", "time series", "AutoformerModel", "history", 0, _SERIES | {"moving_average": 5}),
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
