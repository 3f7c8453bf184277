"""A run whose documents do not see each other: two ranks follow the curve of one."""

import pytest

from chain_case import curve, run_in, write_spec
from cnai import api

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 6


@pytest.fixture
def trained(place):
    """Train under a name on some ranks; return the losses of all steps."""

    def train(name, *, ranks, documents):
        write_spec(
            place,
            {
                "name": name,
                "parallel.data_parallel": {"size": ranks},
                "resources.ranks": ranks,
                "train.steps": STEPS,
                "train.documents": documents,
                "train.evaluate_every": STEPS,
            },
        )
        api.train("run.yaml")
        losses = curve(run_in(place, name))
        assert len(losses) == STEPS
        return losses

    return train


def test_two_ranks_follow_the_curve_of_one(trained):
    one = trained("one", ranks=1, documents="apart")
    assert trained("two", ranks=2, documents="apart") == pytest.approx(one, abs=1e-5)


def test_documents_apart_give_another_curve_than_joined(trained):
    apart = trained("apart", ranks=1, documents="apart")
    joined = trained("joined", ranks=1, documents="joined")
    assert apart[STEPS] != pytest.approx(joined[STEPS], abs=1e-4)
