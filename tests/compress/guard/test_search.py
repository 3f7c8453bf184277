"""The guard on models that are functions, with a clock that only they move."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from cnai.compress.guard.judge import Goal, Judge
from cnai.compress.guard.metrics import metric_of
from cnai.compress.guard.samples import Sample
from cnai.compress.guard.search import Bench, Guard
from cnai.compress.guard.trials import Mode
from cnai.compress.guard.workshop import Candidate, Made
from cnai.compress.onnx_int8 import OpSet
from cnai.compress.weight_only import Scheme, WeightReport, Wishes
from cnai.core.errors import RunError
from graphs_for_tests import numbers
from guard_case import FakeRunner
from monitor_case import FakeClock

GROUPS = tuple(f"layer{number}" for number in range(8))


def weight(name: str, reason: str = "") -> WeightReport:
    return WeightReport(
        name=name,
        use="Conv",
        shape=(4, 4),
        dtype="float32",
        scheme=Scheme.FLOAT16 if reason else Scheme.INT8,
        reason=reason,
        relative_error=0.01,
        cosine=1.0,
        before_bytes=64,
        after_bytes=16,
    )


@dataclass
class Shop:
    """Makes models whose error is the sum of that of their groups, and whose time is given."""

    folder: Path
    errors: dict[str, float] = field(default_factory=dict)
    seconds: dict[Mode, float] = field(default_factory=dict)
    failing: tuple[Mode, ...] = ()
    basis: float | None = None
    rough: float | None = None
    made: dict[Path, tuple[float, float]] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    making: float = 0.0

    def groups(self, mode: Mode, ops: OpSet, wishes: Wishes) -> tuple[str, ...]:
        if self.failing == ("all",):
            raise RunError("cannot be prepared", hint="no")
        return GROUPS if ops is OpSet.WEIGHTED else ()

    def make(self, candidate: Candidate) -> Made:
        self.clock.sleep(self.making)
        if candidate.mode in self.failing:
            raise RunError("it does not load", hint="no")
        if candidate.mode is Mode.WEIGHT_ONLY:
            error = sum(
                self.errors.get(f"w{n}", 0)
                for n in range(4)
                if f"w{n}" not in candidate.wishes.half
            )
            error += (self.basis or 0) if candidate.wishes.bases else 0
            error += (self.rough or 0) if candidate.wishes.rough else 0
        else:
            error = sum(self.errors.get(one, 0) for one in candidate.groups)
        path = self._path(error, self.seconds.get(candidate.mode, 1.0))
        path.write_bytes(b"x" if candidate.wishes.bases else b"larger")
        weights = [weight(f"w{n}") for n in range(4)]
        if self.basis is not None and not candidate.wishes.bases:
            weights.append(weight("basis", "is the fixed basis of a transform"))
        if self.rough is not None and not candidate.wishes.rough:
            weights.append(weight("rough", "INT8 would change it by 9.0%"))
        return Made(path=path, weights=tuple(weights))

    @contextmanager
    def alone(self, candidate: Candidate, group: str):
        yield self._path(self.errors.get(group, 0.0), 1.0)

    def _path(self, error: float, seconds: float) -> Path:
        path = self.folder / str(len(self.made)) / "m.onnx"
        path.parent.mkdir()
        path.write_bytes(b"x")
        self.made[path] = (error, seconds)
        return path


class Source(FakeRunner):
    def __init__(self, shop: Shop) -> None:
        super().__init__(lambda x: x, tick=lambda: shop.clock.sleep(1.0))
        self._shop = shop

    def same_for(self, path: Path) -> FakeRunner:
        error, seconds = self._shop.made[path]
        turned = np.float32(error)
        return FakeRunner(
            lambda x: x + turned * np.roll(x, 1, axis=1) * np.float32([1, -1, 1, -1]),
            tick=lambda: self._shop.clock.sleep(seconds),
        )


@pytest.fixture
def search(tmp_path):
    def run(mode=Mode.AUTO, budget=1e6, **settings):
        shop = Shop(tmp_path, **settings)
        source = Source(shop)
        rows = [Sample(feeds={"x": row[None]}) for row in numbers(50, 4)]
        judge = Judge(source, rows, metric=metric_of("accuracy"), goal=Goal())
        bench = Bench(
            workshop=shop,
            source=source,
            judge=judge,
            finder=judge,
            timed=({"x": numbers(1, 4)}, 1),
            clock=shop.clock,
            deadline=shop.clock.monotonic() + budget,
        )
        return Guard(bench, mode, Wishes()).search()

    return run


def test_the_fastest_that_is_good_enough_is_chosen(search):
    found = search(seconds={Mode.STATIC: 0.4, Mode.DYNAMIC: 0.5})
    assert (found.trial.mode, found.passed) == (Mode.STATIC, True)
    assert sum(one.chosen for one in found.trials) == 1


def test_a_slower_model_is_not_chosen(search):
    found = search(seconds={Mode.STATIC: 2.0, Mode.DYNAMIC: 1.5})
    assert found.trial.mode is Mode.WEIGHT_ONLY


def test_a_slower_model_is_chosen_when_it_is_forced(search):
    found = search(Mode.DYNAMIC, seconds={Mode.DYNAMIC: 1.5})
    assert found.trial.mode is Mode.DYNAMIC
    assert found.trial.speed.slower


def test_the_layer_that_int8_ruins_is_found_and_goes_back(search):
    found = search(errors={"layer5": 0.5}, seconds={Mode.STATIC: 0.4})
    assert found.trial.mode is Mode.STATIC
    assert found.trial.back == ("layer5",)
    assert [one.group for one in found.groups if one.back] == ["layer5"]
    assert found.passed


def test_no_more_layers_go_back_than_must(search):
    errors = {"layer1": 0.5, "layer4": 0.4, "layer6": 0.3, "layer2": 0.01}
    found = search(errors=errors, seconds={Mode.STATIC: 0.4})
    assert set(found.trial.back) == {"layer1", "layer4", "layer6"}


def test_when_every_layer_is_guilty_weight_only_stays(search):
    found = search(errors=dict.fromkeys(GROUPS, 0.5), seconds={Mode.STATIC: 0.4})
    assert found.trial.mode is Mode.WEIGHT_ONLY
    assert found.passed


def test_what_cannot_be_faster_than_the_best_is_not_mended(search):
    found = search(errors={"layer5": 0.5}, seconds={Mode.STATIC: 1.1, Mode.DYNAMIC: 1.1})
    assert found.groups == ()


def test_a_budget_of_nothing_still_gives_weight_only(search):
    found = search(budget=0.0, seconds={Mode.STATIC: 0.1})
    assert found.trial.mode is Mode.WEIGHT_ONLY
    assert found.passed
    assert len(found.trials) == 1
    assert any("budget ended" in one for one in found.notes)


def test_nothing_begins_after_the_budget(search):
    found = search(budget=100.0, making=1000.0, seconds={Mode.STATIC: 0.1})
    assert len(found.trials) == 1


def test_a_model_that_does_not_load_is_a_trial_with_its_reason(search):
    found = search(failing=(Mode.STATIC,), seconds={Mode.DYNAMIC: 0.5})
    assert found.trial.mode is Mode.DYNAMIC
    assert "does not load" in str([one.reason for one in found.trials])


def test_a_model_that_cannot_be_prepared_stays_weight_only_and_says_why(search):
    found = search(failing=("all",))
    assert found.trial.mode is Mode.WEIGHT_ONLY
    assert "cannot be prepared" in found.notes


def test_a_forced_mode_that_is_impossible_is_refused(search):
    with pytest.raises(RunError, match="--mode static"):
        search(Mode.STATIC, failing=("all",))


def test_a_weight_that_int8_hurts_becomes_float16(search):
    found = search(errors={"w2": 0.5}, seconds={Mode.STATIC: 2.0, Mode.DYNAMIC: 2.0})
    assert found.trial.back == ("w2",)
    assert found.passed


def test_a_fixed_basis_becomes_int8_where_data_proves_that_it_does_no_harm(search):
    assert "fixed bases too" in search(basis=0.001).trial.name


def test_a_fixed_basis_stays_float_where_it_does_harm(search):
    found = search(basis=0.6)
    assert found.trial.name == "weight-only"
    assert "fixed bases too" in str([one.name for one in found.trials if not one.passed])


def test_a_weight_that_rounding_changes_much_becomes_int8_where_it_does_no_harm(search):
    found = search(rough=0.001)
    assert "all in INT8" in found.trial.name
    assert any("not proved" in one for one in found.notes)


def test_weights_become_float16_only_after_everything_else(search):
    found = search(errors={"w2": 0.5}, seconds={Mode.STATIC: 0.4})
    assert found.trial.mode is Mode.STATIC


def test_when_nothing_is_good_enough_the_nearest_is_kept(search):
    found = search(Mode.DYNAMIC, errors=dict.fromkeys(GROUPS, 0.5), seconds={Mode.DYNAMIC: 0.5})
    assert not found.passed
    assert len(found.trial.back) == max(len(one.back) for one in found.trials)
