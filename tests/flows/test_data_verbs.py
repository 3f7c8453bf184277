"""`ai-cli data`: text into a store, what the store holds, and whether it is whole."""

import pytest

SMALL = ("--vocab", "300", "--sequence", "32")


@pytest.fixture
def digest(ai_cli):
    """The digest of a dataset that was imported into `data`."""
    ran = ai_cli("data", "import", "texts", *SMALL, "--json")
    assert ran.code == 0, ran.err
    return ran.json["digest"]


def test_text_is_imported_and_the_next_command_named(ai_cli, place):
    ran = ai_cli("data", "import", "texts", "--store", "far", *SMALL)
    assert (ran.code, ran.out.split()[:2]) == (0, ["dataset", "source"])
    assert "next: ai-cli data list --store far" in ran.err
    assert len(list((place / "far").glob("*/manifest.json"))) == 1


def test_the_same_text_is_the_same_dataset(ai_cli, digest):
    again = ai_cli("data", "import", "texts", *SMALL, "--json").json
    assert again["digest"] == digest
    assert [one["digest"] for one in ai_cli("data", "list", "--json").json["datasets"]] == [digest]


def test_a_store_that_holds_nothing_is_an_empty_list(ai_cli):
    assert ai_cli("data", "list", "--store", "nothing", "--json").json["datasets"] == []


def test_a_whole_dataset_is_verified(ai_cli, digest):
    ran = ai_cli("data", "verify", digest[:4])
    assert (ran.code, ran.out) == (0, "")
    assert "every block is as it was written" in ran.err


def test_a_damaged_block_is_named_and_ends_with_4(ai_cli, place, digest):
    block = next(place.glob("data/*/train/*"))
    block.write_bytes(block.read_bytes()[:-2] + b"\x01\x01")
    ran = ai_cli("data", "verify")
    assert ran.code == 4
    assert digest in ran.out
    assert block.name in ran.out
    assert len(ai_cli("data", "verify", "--json").json["problems"]) == 1


def test_a_dataset_that_is_not_there_cannot_be_verified(ai_cli, digest):
    ran = ai_cli("data", "verify", "zz")
    assert (ran.code, "no dataset `zz` in the store" in ran.err) == (4, True)


def test_a_store_of_an_unknown_kind_is_refused(ai_cli):
    ran = ai_cli("data", "import", "texts", "--store", "ftp://host/x", *SMALL)
    assert ran.code in {2, 4}
    assert "ftp" in ran.err
    assert "hint: " in ran.err
