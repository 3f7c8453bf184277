import json
from xml.etree import ElementTree as ET

import pytest


def test_policies_are_compared_without_any_trace(ai_cli):
    ran = ai_cli(
        "simulate", "cluster", "--trace", "synthetic:60", "--policy", "cnai,fifo", "--json"
    )
    assert ran.code == 0
    assert set(ran.json["policies"]) == {"cnai", "fifo"}
    assert ran.json["policies"]["cnai"]["jobs"] == 60


def test_a_table_is_printed_for_people(ai_cli):
    ran = ai_cli("simulate", "cluster", "--trace", "synthetic:30", "--policy", "backfill")
    assert ran.out.splitlines()[0].startswith("policy")
    assert "backfill" in ran.out


def test_the_same_seed_gives_the_same_numbers(ai_cli):
    words = ["simulate", "cluster", "--trace", "synthetic:40", "--json", "--seed"]
    assert ai_cli(*words, 1).json == ai_cli(*words, 1).json
    assert ai_cli(*words, 1).json != ai_cli(*words, 2).json


def test_the_page_holds_a_picture_for_each_question(ai_cli, tmp_path):
    page = tmp_path / "report.html"
    ran = ai_cli("simulate", "cluster", "--trace", "synthetic:40", "--report", page)
    assert ran.code == 0
    text = page.read_text()
    pictures = ["<svg" + part.split("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
    assert len(pictures) == 4
    for picture in pictures:
        ET.fromstring(picture)
        assert "nan" not in picture
    assert "<script" not in text


def test_names_in_the_page_are_escaped(ai_cli, tmp_path):
    trace = tmp_path / "<b>.csv"
    trace.write_text("timestamp,duration,num_gpus\n2017-10-09,5,1\n")
    ai_cli("simulate", "cluster", "--trace", trace, "--report", tmp_path / "r.html")
    assert "<b>" not in (tmp_path / "r.html").read_text()


def test_a_job_of_a_simulation_can_be_explained(ai_cli):
    words = [
        "--trace",
        "synthetic:300",
        "--policy",
        "fifo",
        "--until",
        "12h",
        "--state",
        "state.json",
    ]
    assert ai_cli("simulate", "cluster", *words).code == 0
    jobs = ai_cli("cluster", "status", "--json").json["jobs"]
    waiting = [job["name"] for job in jobs if not job["slots"]]
    assert waiting
    ran = ai_cli("cluster", "explain", waiting[0], "--json")
    assert ran.json["state"] == "waiting"
    assert ran.json["code"] in {"no_room", "next", "queue_limit"}
    assert waiting[0] in ai_cli("cluster", "explain", waiting[0]).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "best"], "no policy is called `best`"),
        (["--policy", ","], "no policy is named"),
        (["--cluster", "many"], "`many` is no cluster"),
        (["--trace", "gone.csv"], "`gone.csv` is no trace"),
    ],
)
def test_a_mistake_ends_with_two_and_a_hint(ai_cli, words, told):
    ran = ai_cli("simulate", "cluster", *words)
    assert ran.code == 2
    assert told in ran.err
    assert "hint:" in ran.err


def test_a_state_that_is_missing_or_damaged_ends_with_four(ai_cli, tmp_path):
    assert ai_cli("cluster", "status").code == 4
    (tmp_path / "state.json").write_text(json.dumps({"now": 1}))
    assert ai_cli("cluster", "explain", "a").code == 4
