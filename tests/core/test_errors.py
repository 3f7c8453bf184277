import pickle

import pytest

from cnai.core import errors
from cnai.core.errors import CnaiError, SpecError

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CnaiError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_way_between_processes(kind):
    error = pickle.loads(pickle.dumps(kind("what", hint="how", where="there")))
    assert type(error) is kind
    assert (error.message, error.hint, error.where, str(error)) == ("what", "how", "there", "what")


def test_the_other_mistakes_of_a_spec_survive_too():
    error = SpecError("a", hint="x", others=(SpecError("b", hint="y"),))
    assert pickle.loads(pickle.dumps(error)).others[0].message == "b"


def test_each_kind_has_a_code_and_an_exit_code_of_its_own():
    assert (
        len({kind.code for kind in KINDS}) == len({kind.exit_code for kind in KINDS}) == len(KINDS)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn_in_the_table_of_the_module(kind):
    assert kind.__name__ in errors.__doc__


def test_a_hint_is_not_optional():
    with pytest.raises(TypeError):
        CnaiError("what")


def test_a_spec_error_without_others_does_not_mention_them():
    assert "others" not in SpecError("a", hint="x").to_dict()


def test_the_others_of_a_spec_error_are_told_in_full():
    other = SpecError("b", hint="y", where="z")
    assert SpecError("a", hint="x", others=(other,)).to_dict()["others"] == [other.to_dict()]
