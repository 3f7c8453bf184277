from hypothesis import given
from hypothesis import strategies as st

from cnai.core.shape import DecoderShape

LLAMA_7B = DecoderShape(
    layers=32, width=4096, heads=32, kv_heads=32, ffn_width=11008, vocab=32000, sequence=4096
)
LLAMA_70B = DecoderShape(
    layers=80, width=8192, heads=64, kv_heads=8, ffn_width=28672, vocab=32000, sequence=4096
)
SHAPES = st.builds(
    lambda layers, heads, groups, head, ffn, vocab, tied: DecoderShape(
        layers=layers, width=heads * groups * head, heads=heads * groups, kv_heads=heads,
        ffn_width=ffn, vocab=vocab, sequence=16, tied_head=tied,
    ),
    *[st.integers(1, 8)] * 3, st.sampled_from([2, 4]), st.integers(1, 64), st.integers(256, 512),
    st.booleans(),
)  # fmt: skip


QWEN2_7B = DecoderShape(
    layers=28, width=3584, heads=28, kv_heads=4, ffn_width=18944, vocab=152064, sequence=32768,
    attention_bias=True,
)  # fmt: skip
QWEN3_8B = DecoderShape(
    layers=36, width=4096, heads=32, kv_heads=8, ffn_width=12288, vocab=151936, sequence=40960,
    qk_norm=True, head_size=128,
)  # fmt: skip
MISTRAL_NEMO = DecoderShape(
    layers=40, width=5120, heads=32, kv_heads=8, ffn_width=14336, vocab=131072, sequence=131072,
    head_size=128,
)  # fmt: skip


def test_the_published_sizes_are_met():
    assert LLAMA_7B.parameters == 6_738_415_616
    assert LLAMA_70B.parameters == 68_976_648_192
    assert QWEN2_7B.parameters == 7_615_616_512
    assert QWEN3_8B.parameters == 8_190_735_360
    assert MISTRAL_NEMO.parameters == 12_247_782_400


@given(SHAPES)
def test_a_tied_head_is_counted_once(shape):
    untied = shape.vocab * shape.width
    assert shape.head_parameters == shape.width + (0 if shape.tied_head else untied)


@given(SHAPES)
def test_the_parts_make_the_whole(shape):
    assert shape.parameters == (
        shape.embedding_parameters + shape.layers * shape.layer_parameters + shape.head_parameters
    )


@given(SHAPES)
def test_training_costs_about_six_flops_per_weight(shape):
    weights = shape.layers * (shape.attention_parameters + shape.ffn_parameters)
    least = 6 * (weights + shape.vocab * shape.width)
    assert shape.train_flops_per_token(0) == least
    assert shape.train_flops_per_token() == least + 12 * shape.layers * shape.width * 16
