import pytest

from cnai.core.errors import DataError
from cnai.plan.reading import FAMILIES, described

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840,
}  # fmt: skip
KNOWN = {
    "Llama-3-8B": (LLAMA, 8_030_261_248),
    "GPT-2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
         "n_positions": 1024},
        124_439_808,
    ),
    "GPT-NeoX-20B": (
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44,
         "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432,
         "max_position_embeddings": 2048},
        20_554_567_680,
    ),
    "BLOOM-176B": (
        {"model_type": "bloom", "n_embd": 14336, "n_layer": 70, "n_head": 112,
         "vocab_size": 250880},
        176_247_271_424,
    ),
    "Mixtral-8x7B": (
        {"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
         "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000},
        46_702_792_704,
    ),
    "Qwen2.5-7B": (
        {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
         "vocab_size": 152064},
        7_615_616_512,
    ),
    "DeepSeek-V3": (DEEPSEEK, 671_026_404_352),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_model_has_the_parameters_that_it_is_known_for(name):
    config, parameters = KNOWN[name]
    assert described(config, where="config.json").parameters == parameters


def test_a_token_of_deepseek_goes_through_37_billion_parameters():
    shape = described(DEEPSEEK, where="config.json")
    assert shape.active_parameters == pytest.approx(37.5e9, rel=0.02)
    assert shape.sparse_layers == 58


def test_a_vision_transformer_sees_all_patches_at_once():
    config = {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12,
              "num_attention_heads": 12, "intermediate_size": 3072}  # fmt: skip
    shape = described(config, where="config.json")
    assert (shape.sequence, shape.causal) == (197, False)
    assert shape.parameters == pytest.approx(86_567_656, rel=1e-4)


def test_the_sequence_is_that_of_the_spec():
    assert described(LLAMA, where="c", sequence=2048).sequence == 2048
    assert described(LLAMA, where="c").sequence == 8192


def test_scaled_positions_are_no_obstacle_on_paper():
    scaled = LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert described(scaled, where="c").layers == 32


def test_another_kind_of_model_is_refused_with_those_that_are_read():
    with pytest.raises(DataError, match="deepseek_v3"):
        described({"model_type": "t5"}, where="c")


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", True])
def test_a_size_that_is_no_number_is_refused(value):
    with pytest.raises(DataError, match="hidden_size") as caught:
        described(LLAMA | {"hidden_size": value}, where="c")
    assert caught.value.where == "c"


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_config_without_sizes_is_refused(kind):
    with pytest.raises(DataError, match="missing"):
        described({"model_type": kind}, where="c")
