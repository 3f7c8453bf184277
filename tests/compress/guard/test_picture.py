from cnai.compress.agreement import Agreement
from cnai.compress.guard.judge import quality_of
from cnai.compress.guard.picture import bars, frontier, letter
from cnai.compress.guard.trials import GroupError, Mode, Score, Speed, Trial
from graphs_for_tests import numbers


def trial(ratio: float | None, error: float, *, passed: bool = True) -> Trial:
    values = abs(numbers(4, 1))
    quality = quality_of("m", values, values, lambda v: float(v.mean()), 0.01)
    seen = Agreement(inputs="data", runtime="r", samples=4, cosine=1, relative_error=error)
    speed = ratio and Speed(
        ratio=ratio, low=ratio, high=ratio, before_seconds=1, after_seconds=1, pairs=9, rows=1
    )
    return Trial(
        name="t",
        mode=Mode.STATIC,
        score=Score(quality=quality, agreement=seen, passed=passed, resolvable=True, reason=""),
        speed=speed or None,
        size_bytes=1,
        back=(),
        seconds=1,
    )


def test_the_guiltiest_group_has_the_longest_bar():
    groups = [GroupError(group="a", error=0.01), GroupError(group="b", error=0.5, back=True)]
    first, second = bars(groups)
    assert first.startswith("b ")
    assert first.endswith("<- back")
    assert first.count("#") > second.count("#") > 0


def test_a_group_that_broke_the_model_has_a_bar_too():
    assert "#" * 40 in bars([GroupError(group="a", error=float("inf"))])[0]


def test_groups_without_error_have_no_bar():
    assert "#" not in bars([GroupError(group="a", error=0.0)])[0]


def test_many_groups_are_cut_with_their_number():
    groups = [GroupError(group=f"g{n}", error=0.1) for n in range(50)]
    assert bars(groups)[-1] == "... and 10 with less"


def test_faster_trials_stand_right_and_worse_ones_higher():
    lines = frontier([trial(1.0, 0.001), trial(2.0, 0.5, passed=False)])
    rows = [one for one in lines if one.startswith("|")]
    assert rows[0].rstrip().endswith("b")
    assert rows[-1].startswith("|A")


def test_one_point_is_no_picture():
    assert frontier([trial(1.0, 0.1), trial(None, 0.1)]) == []


def test_letters_begin_again_after_the_last():
    assert (letter(0, passed=True), letter(27, passed=False)) == ("A", "b")
