import inspect

import pytest
from inline_snapshot import snapshot

from cnai.core.spec import checks, expert_checks, load_spec
from mistakes import mistakes


def told(**flags):
    """Return the mistakes of `a__b=c` keys."""
    return mistakes({}, sets=[f"{key.replace('__', '.')}={value}" for key, value in flags.items()])


def test_a_width_that_does_not_divide_by_the_heads():
    assert told(model__width=100, model__heads=3) == snapshot(
        [
            "--set model.width | `model.width` 100 does not divide by `model.heads` 3 | set `model.width` to 96 or 102, or change the heads"
        ]
    )


def test_heads_of_odd_size():
    assert told(model__width=20, model__heads=4) == snapshot(
        [
            "--set model.width | `model.width` 20 over `model.heads` 4 makes heads of 5, but rotary positions need an even size | set `model.width` to 16 or 24"
        ]
    )


def test_heads_that_do_not_divide_by_the_kv_heads():
    assert told(model__heads=4, model__kv_heads=3) == snapshot(
        [
            "--set model.kv_heads | `model.heads` 4 does not divide by `model.kv_heads` 3 | set `model.kv_heads` to one of 1, 2, 4"
        ]
    )


def test_a_model_parallel_size_that_does_not_divide_the_weights():
    assert told(model__heads=8, model__kv_heads=2, model_parallel__size=4) == snapshot(
        [
            "--set parallel.model_parallel.size | `parallel.model_parallel.size` 4 does not divide `model.kv_heads` 2 | sizes that divide the model are 1, 2"
        ]
    )


def test_a_model_parallel_size_that_does_not_divide_the_vocabulary():
    assert "`model.vocab` 4097" in told(model__vocab=4097, model_parallel__size=2)[0]


def test_more_stages_than_layers():
    assert told(model__layers=4, pipeline_parallel__stages=5) == snapshot(
        [
            "--set parallel.pipeline_parallel.stages | `parallel.pipeline_parallel.stages` is 5, but the model has only 4 layers | use at most 4 stages"
        ]
    )


def test_several_stages_a_rank_need_layers_too():
    asked = {"model__layers": 4, "pipeline_parallel__stages": 4}
    (mistake,) = told(**asked, pipeline_parallel__schedule="ZBVZeroBubble")
    assert "is 4 with 2 stages a rank" in mistake
    assert "use at most 2 stages" in mistake


@pytest.mark.parametrize(
    ("schedule", "virtual", "hint"),
    [("1F1B", 2, "Interleaved1F1B"), ("DualPipeV", 1, "1F1B or GPipe"), ("GPipe", 3, "LoopedBFS")],
)
def test_a_schedule_with_the_wrong_number_of_stages(schedule, virtual, hint):
    asked = {"pipeline_parallel__schedule": schedule, "pipeline_parallel__virtual": virtual}
    (mistake,) = told(pipeline_parallel__stages=2, **asked)
    assert f"`parallel.pipeline_parallel.virtual` is {virtual}" in mistake
    assert hint in mistake


def test_several_stages_a_rank_without_a_pipeline():
    (mistake,) = told(pipeline_parallel__stages=1, pipeline_parallel__virtual=2)
    assert "there is no pipeline" in mistake


@pytest.mark.parametrize("key", ["recompute", "compile"])
def test_what_a_split_backward_pass_would_do_many_times(key):
    value = {"recompute": "full", "compile": True}[key]
    (mistake,) = told(pipeline_parallel__schedule="ZBVZeroBubble", **{f"train__{key}": value})
    assert f"train.{key}" in mistake
    assert "use the schedule Interleaved1F1B" in mistake


def test_a_split_beyond_the_last_layer():
    assert told(model__layers=4, model_parallel__split_layer=5) == snapshot(
        [
            "--set parallel.model_parallel.split_layer | `parallel.model_parallel.split_layer` is 5, but the model has only 4 layers | use 0 (all layers are split) to 4 (none is)"
        ]
    )


def test_a_split_at_the_end_is_allowed():
    assert told(model__layers=4, model_parallel__split_layer=4) == []


def test_nobody_contradicts_a_default_shape():
    assert told(model_parallel__split_layer=16, pipeline_parallel__stages=8) == []


def test_the_shape_of_a_folder_is_left_to_the_planner():
    assert told(model__huggingface="x", pipeline_parallel__stages=99) == []


def test_sizes_that_do_not_make_the_ranks():
    sizes = {"data_parallel__size": 2, "model_parallel__size": 2, "pipeline_parallel__stages": 2}
    assert told(resources__ranks=4, **sizes) == snapshot(
        [
            "--set resources.ranks | `resources.ranks` is 4, but the parallel sizes (data x model x pipeline) are 2 x 2 x 2 = 8 | remove `resources.ranks`, or one of the sizes and let the planner choose it"
        ]
    )


def test_ranks_that_the_given_sizes_cannot_divide():
    assert told(resources__ranks=6, data_parallel__size=4) == snapshot(
        [
            "--set resources.ranks | `resources.ranks` is 6, but the parallel sizes (data x model x pipeline) are 4 x ? x ? | remove `resources.ranks`, or one of the sizes and let the planner choose it"
        ]
    )


def test_ranks_that_the_planner_can_complete():
    assert told(resources__ranks=8, data_parallel__size=4) == []


def test_a_batch_that_does_not_divide_among_the_copies():
    assert told(train__batch=10, data_parallel__size=4) == snapshot(
        [
            "--set train.batch | `train.batch` 10 does not divide by `parallel.data_parallel.size` 4 | set `train.batch` to 8 or 12"
        ]
    )


def test_a_share_that_does_not_divide_into_pieces():
    assert told(
        train__batch=12, data_parallel__size=2, pipeline_parallel__microbatches=4
    ) == snapshot(
        [
            "--set parallel.pipeline_parallel.microbatches | a rank's share of the batch (6 sequences) does not divide into `parallel.pipeline_parallel.microbatches` 4 | set `train.batch` to 8 or 16"
        ]
    )


def test_steps_and_tokens_together():
    assert told(train__steps=10, train__tokens=10_000) == snapshot(
        [
            "--set train.tokens | both `train.steps` (10) and `train.tokens` (10000) say how long to train | remove one of the two"
        ]
    )


def test_a_warm_up_as_long_as_the_training():
    assert told(train__steps=10, train__warmup_steps=10) == snapshot(
        [
            "--set train.warmup_steps | `train.warmup_steps` is 10, but the training has only 10 steps | set `train.warmup_steps` below 10, or train longer"
        ]
    )


def test_a_warm_up_longer_than_the_tokens_last():
    assert "has only 1 steps" in told(train__tokens=10, train__warmup_steps=5)[0]


def test_the_default_warm_up_contradicts_nobody():
    assert told(train__steps=3) == []


def test_two_sources_of_the_model():
    assert told(model__huggingface="a", model__module="b:c") == snapshot(
        [
            "--set model.module | both `model.huggingface` (`a`) and `model.module` (`b:c`) say where the model comes from | remove one of the two"
        ]
    )


@pytest.mark.parametrize("source", ["huggingface=folder", "module=a.b:c"])
def test_a_shape_beside_a_model_that_fixes_it(source):
    (only,) = mistakes({}, sets=[f"model.{source}", "model.layers=4"])
    assert "`model.layers` is given, but `model." in only


def test_a_module_may_tell_its_vocabulary():
    assert told(model__module="a.b:c", model__vocab=300) == []


@pytest.mark.parametrize("name", ["a", "a.b", "a:", ":b", "a b:c", "a:b:c", "a/b.py:c"])
def test_a_module_that_names_no_function(name):
    assert "does not name a function" in mistakes({"model": {"module": name}})[0]


def test_whether_a_module_can_be_split_is_for_its_table_to_say():
    assert told(model__module="a.b:c", model_parallel__size=2) == []


def test_a_loss_without_a_module_of_ones_own():
    assert told(model__loss="squared_error") == snapshot(
        [
            "--set model.loss | `model.loss` is `squared_error`, which goes with a module of your own, and there is no `model.module` | name the function that builds it as `model.module`, or remove `model.loss`"
        ]
    )


def test_a_dataset_without_a_module_of_ones_own():
    (mistake,) = told(data__source="pictures:digits")
    assert "`data.source` is `pictures:digits`" in mistake
    assert "there is no `model.module`" in mistake


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error", "own", "a.b:c"])
def test_the_losses_of_a_module(loss):
    assert told(model__module="a:b", model__loss=loss) == []


def test_a_z_loss_is_for_decoders():
    (mistake,) = told(model__module="a:b", train__z_loss=1e-4)
    assert "`train.z_loss` is 0.0001" in mistake


def test_a_loss_that_is_unknown():
    (mistake,) = told(model__module="a:b", model__loss="crossentropy")
    assert "`model.loss` is `crossentropy`, which is no loss" in mistake
    assert "use cross_entropy, squared_error, own" in mistake


@pytest.mark.parametrize("source", ["pydocs", "texts", "a/b.jsonl", "s3://a:b", "C:/texts"])
def test_a_source_of_text_is_no_function(source):
    assert told(data__source=source) == []


@pytest.mark.parametrize("text", ["lots", "80 XB", "0 GB", '"-3"', '""'])
def test_a_memory_that_is_no_size(text):
    assert "is no size of memory" in told(resources__device_memory=text)[0]


def test_a_path_with_a_zero_byte():
    assert "zero byte" in mistakes({"output": "a\0b"})[0]


def test_the_place_is_a_key_that_somebody_wrote():
    assert mistakes({"model": {"heads": 3}})[0].startswith("model.heads | ")


def test_every_rule_is_in_the_table():
    rules = [
        function
        for module in (checks, expert_checks)
        for name, function in inspect.getmembers(module, inspect.isgeneratorfunction)
        if not name.startswith("_")
    ]
    assert set(rules) == set(checks.RULES)


def test_the_defaults_keep_every_rule():
    assert load_spec({"name": "x"}).spec.name == "x"


def test_heads_of_their_own_width_need_not_fill_the_model():
    assert told(model__width=100, model__heads=3, model__head_width=16) == []


def test_an_odd_head_width():
    assert "`model.head_width` is 5" in told(model__head_width=5)[0]


def test_biases_together_with_normed_heads():
    assert "Qwen2" in told(model__attention_bias="true", model__qk_norm="true")[0]


def test_adapters_beside_a_module_of_ones_own():
    assert "`train.lora.rank` is 4" in told(model__module="a:b", train__lora__rank=4)[0]


@pytest.mark.parametrize("targets", ["[]", "[q_proj, q_proj]"])
def test_adapters_without_clear_targets(targets):
    assert "train.lora.targets" in told(train__lora__rank=4, train__lora__targets=targets)[0]


def test_an_unknown_target_is_refused():
    assert told(train__lora__rank=4, train__lora__targets="[qkv]")


def test_documents_apart_are_for_decoders():
    (mistake,) = told(model__module="a:b", train__documents="apart")
    assert "`train.documents` is `apart`" in mistake


def test_8_bit_floats_rest_on_bfloat16():
    (mistake,) = told(train__float8=True)
    assert "set `train.precision: bfloat16`" in mistake
    assert not told(train__float8=True, train__precision="bfloat16")


@pytest.mark.parametrize("other", [{"model__module": "a:b"}, {"train__lora__rank": 2}])
def test_8_bit_floats_are_for_the_weights_of_a_decoder(other):
    (mistake,) = told(train__float8=True, train__precision="bfloat16", **other)
    assert "remove one of the two" in mistake
