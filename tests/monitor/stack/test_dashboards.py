import json

import pytest

from cnai.monitor.stack import DASHBOARDS, stack_files
from house import ROOT

PAGES = {one.uid: one.as_json() for one in DASHBOARDS}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_panels_lie_side_by_side_and_not_over_each_other(page):
    taken = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_is_of_the_present_schema(page):
    assert page["schemaVersion"] >= 39
    assert {panel["type"] for panel in page["panels"]} <= {
        "timeseries", "stat", "bargauge", "state-timeline",
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_question_is_about_the_chosen_run_or_model(page):
    variable = page["templating"]["list"][1]["name"]
    for panel in page["panels"]:
        for target in panel["targets"]:
            assert f'{variable}="${variable}"' in target["expr"]


def test_titles_and_names_are_there_once():
    assert len({page["title"] for page in PAGES.values()}) == len(PAGES) == 4
    for page in PAGES.values():
        assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])


def test_the_files_in_deploy_are_fresh():
    found = {
        path.relative_to(ROOT / "deploy").as_posix(): path.read_bytes()
        for path in (ROOT / "deploy").rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert found == stack_files(), "run `ai-cli dashboards export --dir deploy`"


def test_the_map_for_a_cluster_holds_the_same_dashboards():
    import yaml

    files = stack_files()
    held = yaml.safe_load(files["kubernetes/dashboards.yaml"])["data"]
    assert {name: json.loads(text) for name, text in held.items()} == {
        f"{uid}.json": page for uid, page in PAGES.items()
    }
