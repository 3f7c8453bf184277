"""Sharding tables and what is counted of a user's own module."""

import pytest
import torch
from torch import nn

from cnai.core.errors import SpecError
from cnai.core.module import ModuleTable, Split, Unit
from cnai.models.sharding_table import fits, splits_of
from cnai.models.user_module import Cut, check_flow, facts_of, layers_of, module_and_table

WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(x))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, WIDTH)
        self.body = nn.Module()
        self.body.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 12)

    def forward(self, x):
        x = self.words(x)
        for block in self.body.blocks:
            x = block(x)
        return self.head(x)


TABLE = {
    "inlet": "words",
    "layers": "body.blocks",
    "outlet": ["head"],
    "split": {"body.blocks.*.up": "column", "body.blocks.*.down": "row", "words": "row"},
}


def table(**changes):
    return module_and_table((Small(), {**TABLE, **changes}), name="a:b")


def refused(built):
    with pytest.raises(SpecError) as caught:
        module_and_table(built, name="a:b")
    assert caught.value.where == "model.module"
    assert caught.value.hint
    return caught.value


def facts(**changes):
    return facts_of(*table(**changes), name="a:b")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("a.*.b", "a.0.b"), ("a.b", "a.b"), ("*", "a"), ("a.?.b", "a.7.b"), ("a.la*", "a.layer")],
)
def test_a_pattern_fits_part_by_part(pattern, path):
    assert fits(pattern, path)


@pytest.mark.parametrize(("pattern", "path"), [("a.*", "a.b.c"), ("a.*.b", "a.b"), ("a", "a.b")])
def test_a_star_stands_for_one_part(pattern, path):
    assert not fits(pattern, path)


def test_the_first_pattern_that_fits_counts():
    module, found = table(split={"body.blocks.0.up": "whole", "body.blocks.*.up": "column"})
    words = splits_of(module, found)
    assert words["body.blocks.0.up"] is Split.WHOLE
    assert words["body.blocks.1.up"] is Split.COLUMN


def test_a_module_alone_has_an_empty_table():
    assert module_and_table(Small(), name="a:b")[1] == ModuleTable()


@pytest.mark.parametrize("built", [None, 3, nn.Linear, (3, {})])
def test_what_is_no_module_is_refused(built):
    assert "no torch module" in refused(built).message


def test_a_module_without_forward_is_refused():
    class Still(nn.Module):
        pass

    assert "has no forward" in refused(Still()).message


@pytest.mark.parametrize(
    ("plain", "message", "hint"),
    [
        ([], "is list, no dict", "return"),
        ({"layer": "x"}, "unknown key `layer`", "did you mean `layers`?"),
        ({"split": {"words": "columns"}}, "says `columns` of `words`", "column, row, whole"),
        ({"split": ["words"]}, "has `split`", "a dict"),
        ({"heads": "four"}, "has `heads` 'four'", "number of heads"),
        ({"inlet": 3}, "has `inlet` 3", "a path"),
        ({"layers": ["a"]}, "has `layers`", "one ModuleList"),
        ({"layers": "body.block"}, "names `body.block`", "the nearest path is `body.blocks`"),
        ({"layers": "head"}, "names `head` as layers, a Linear", "ModuleList"),
        ({"split": {"words.a*": "row"}}, "fits nothing", "the nearest path is"),
        ({"split": {"body": "row"}}, "splits `body` by row, a Module", "Linear and Embedding"),
        ({"split": {"head.bias": "column"}}, "a parameter", "Linear and Embedding"),
    ],
)
def test_a_wrong_table_is_told_with_what_would_be_right(plain, message, hint):
    error = refused((Small(), plain))
    assert message in error.message
    assert hint in error.hint


def test_every_parameter_is_counted_once():
    found = facts()
    assert found.parameters == sum(one.numel() for one in Small().parameters())
    assert found.inlet == Unit(split=96, trained_split=96)
    assert found.layers[0] == Unit(
        whole=WIDTH, split=2 * 128 + 16, trained_whole=WIDTH, trained_split=2 * 128 + 16
    )


def test_frozen_parameters_are_held_and_not_trained():
    module, found = table()
    module.head.requires_grad_(False)
    assert facts_of(module, found, name="a:b").outlet == Unit(whole=108)


def test_nothing_before_the_split_layer_is_split():
    found = facts()
    assert found.stage(0, 2, 2).split == 0
    assert found.stage(0, 2, 1).split == found.layers[1].split
    assert found.stage(0, 2, 0).split == 2 * found.layers[1].split + found.inlet.split


def test_stages_together_hold_all():
    found = facts()
    cut = [found.stage(0, 1, 1), found.stage(1, 3, 1)]
    assert sum(one.held(1) for one in cut) == found.parameters


def test_the_widths_are_those_that_are_cut():
    widths = dict(facts(heads=4).widths)
    assert widths["heads"] == 4
    assert widths["words"] == 12
    assert (widths["body.blocks.0.up"], widths["body.blocks.0.down"]) == (16, 16)


def test_a_module_on_the_meta_device_is_counted_alike():
    with torch.device("meta"):
        module = Small()
    assert facts_of(*module_and_table((module, TABLE), name="a:b"), name="a:b") == facts()


def test_without_a_table_nothing_is_split_cut_or_recomputed():
    found = facts_of(*module_and_table(Small(), name="a:b"), name="a:b")
    assert "no sharding table" in found.no_split
    assert "`layers`" in found.no_cut
    assert "`layers`" in found.no_recompute


def test_what_lies_outside_of_the_three_paths_forbids_a_cut():
    assert "`words.weight` lies outside" in facts(inlet=None).no_cut


def test_a_parameter_with_two_names_is_neither_split_nor_cut():
    module, found = table()
    module.head.weight = module.words.weight
    known = facts_of(module, found, name="a:b")
    assert "`words.weight` and `head.weight` are one parameter" in known.no_split
    assert "are one parameter" in known.no_cut


def test_layers_that_count_batches_are_not_recomputed():
    module = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    found = facts_of(module, ModuleTable(layers="0"), name="a:b")
    assert "`0.1.num_batches_tracked` would be counted twice" in found.no_recompute


def test_the_parts_of_a_cut_have_the_names_of_the_whole_and_together_its_outputs():
    module, found = table()
    parts = [
        Cut(module, found, first_layer=first, end_layer=end) for first, end in ((0, 1), (1, 3))
    ]
    names = [name for part in parts for name, _ in part.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in module.named_parameters())
    assert [index for index, _ in layers_of(parts[1], found)] == [1, 2]
    rows = torch.arange(6).view(2, 3)
    assert torch.equal(parts[1](parts[0](rows)), module(rows))


def test_a_module_that_does_more_than_its_table_says_is_not_cut():
    class More(Small):
        def forward(self, x):
            return 2 * super().forward(x)

    module, found = module_and_table((More(), TABLE), name="a:b")
    rows = torch.arange(6).view(2, 3)
    with pytest.raises(SpecError, match="computes something else"):
        check_flow(module, found, (rows,), {}, name="a:b")
    check_flow(*table(), (rows,), {}, name="a:b")
