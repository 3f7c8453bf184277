from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.plan import DEVICES
from cnai.plan.described import DescribedShape
from cnai.plan.operators import Chip, Slice, head_work, layer_work
from cnai.plan.software import CNAI
from plan_cases import LARGE, MIXTURE, QWEN3_235B

H100 = DEVICES["H100-80GB"]
CHIP = Chip.of(H100, "bfloat16")
STORING = replace(CNAI, name="storing", stores_scores=True)
PART = Slice(tokens=8192, keys=4096)


def work(shape=LARGE, chip=CHIP, software=CNAI, part=PART, *, sparse=False):
    return layer_work(shape, chip, software, part, sparse=sparse)


def test_no_product_beats_the_peak():
    flops = 2 * 8192 * 8192 * 8192
    assert CHIP.product(8192, 8192, 8192) > flops / H100.bf16_flops


def test_a_thin_product_waits_for_memory():
    weights = 2 * 16384 * 16384
    assert CHIP.product(1, 16384, 16384) >= weights / CHIP.memory


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 20_000))
def test_a_larger_product_never_takes_less(m, n, k):
    assert CHIP.product(m, n, k) <= CHIP.product(2 * m, n, k)


def test_eight_bits_are_faster_for_large_products_but_not_twice():
    narrow = Chip.of(H100, "fp8")
    ratio = CHIP.product(16384, 16384, 16384) / narrow.product(16384, 16384, 16384)
    assert 1.2 < ratio < 2.6


def test_a_device_without_narrow_formats_computes_in_wide_ones():
    assert Chip.of(DEVICES["A100-80GB"], "fp8").narrow is None


def test_stored_scores_cost_memory_traffic():
    assert work(software=STORING).core > work().core


def test_heads_that_no_tensor_core_can_tile_are_slow():
    odd = replace(LARGE, heads=80, kv_heads=80, head_size=108)
    even = replace(LARGE, heads=80, kv_heads=80, head_size=112)
    assert work(odd, software=STORING).core > 1.2 * work(even, software=STORING).core


def test_a_split_layer_is_faster_but_less_than_in_proportion():
    whole, split = work().forward, work(part=replace(PART, split=8)).forward
    assert whole / 8 < split < whole / 4


def test_sharing_the_stream_saves_element_wise_work():
    split = replace(PART, split=8)
    assert work(part=replace(split, shares_stream=True)).stream < work(part=split).stream


def test_a_tiny_layer_takes_as_long_as_starting_its_kernels():
    tiny = work(part=Slice(tokens=1, keys=1))
    assert tiny.forward >= tiny.host


def test_backward_takes_about_twice_as_long():
    found = work()
    assert 1.8 * found.forward < found.backward < 2.3 * found.forward


@pytest.mark.parametrize("what", ["attention", "half", "layers"])
def test_what_is_done_again_is_part_of_forward(what):
    assert 0 < work().again(what) <= work().forward


def test_many_small_experts_are_slower_than_one_layer_of_the_same_work():
    few = replace(QWEN3_235B, experts=8, experts_per_token=1, expert_width=8 * 1536)
    rows = Slice(tokens=2048, keys=4096, spread=8)
    assert (
        work(QWEN3_235B, part=rows, sparse=True).products
        > work(few, part=rows, sparse=True).products
    )


def test_spreading_experts_gives_each_rank_fewer_with_more_rows():
    alone = work(MIXTURE, part=Slice(tokens=64, keys=32), sparse=True)
    spread = work(MIXTURE, part=Slice(tokens=64, keys=32, spread=8), sparse=True)
    assert spread.products <= alone.products


def test_attention_to_all_positions_costs_twice_the_causal():
    shape = DescribedShape(
        layers=1, width=768, heads=12, kv_heads=12, ffn_width=3072, vocab=1000, sequence=197
    )
    both = work(replace(shape, causal=False)).core
    assert both == pytest.approx(2 * work(shape).core)


def test_a_split_head_is_faster():
    assert head_work(LARGE, CHIP, 4096, 8) < head_work(LARGE, CHIP, 4096, 1) / 4
