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


def test_the_published_sizes_are_met():
    assert LLAMA_7B.parameters == 6_738_415_616
    assert LLAMA_70B.parameters == 68_976_648_192


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
