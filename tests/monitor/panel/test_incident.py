import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.monitor.panel.incident import (
    Happening,
    Incident,
    Mending,
    RankLog,
    incident_page,
    style_hash,
)
from cnai.monitor.panel.incident_lanes import Lane, Span, draw_lanes


def spans(kind="work"):
    return (Span(start=-2.0, end=0.0, kind=kind, title="step 8"),)


def incident(**changes):
    plain = {
        "run": "demo", "verdict": "fault", "headline": "rank 1 hangs", "when": "today",
        "confidence": 0.9, "facts": (("rank", "1"),),
        "lanes": (
            Lane(rank=0, spans=spans()),
            Lane(rank=1, spans=spans("open"), is_root=True, end=3.0),
        ),
        "break_at": 0.0, "break_label": "rank 1, data",
        "happenings": (Happening(seconds=1.5, who="rank 0", what="waits"),),
        "logs": (
            RankLog(rank=1, part="root", file="logs/rank-1.log", lines=((7, "a"), (8, "b")), root=8),
        ),
        "evidence": ("seen",),
        "mendings": (Mending(title="mend it", changes=(("train.batch", "8", "4"),)),),
        "done": ("restart_same: may pass",),
    }  # fmt: skip
    return Incident(**{**plain, **changes})


@pytest.mark.parametrize(
    "words",
    ["rank 1 hangs", "rank 1, data", "+1.5 s", "logs/rank-1.log", "seen", "may pass"],
)
def test_the_page_tells_all(words):
    assert words in incident_page(incident())


def test_the_page_needs_nothing_else():
    page = incident_page(incident())
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import|style=", page)


def test_what_comes_from_logs_is_no_markup():
    evil = "<script>alert(1)</script>\"'&"
    page = incident_page(
        incident(
            headline=evil,
            run=evil,
            break_label=evil,
            evidence=(evil,),
            done=(evil,),
            facts=((evil, evil),),
            logs=(RankLog(rank=1, part="root", file=evil, lines=((1, evil),), stack=(evil,)),),
            mendings=(Mending(title=evil, command=evil, changes=((evil, evil, evil),)),),
        )
    )
    assert "<script" not in page


def test_the_root_line_is_marked():
    assert '<span class="root"><i>8</i>b' in incident_page(incident())


def test_a_change_is_shown_as_a_diff():
    page = incident_page(incident())
    assert "- train.batch: 8" in page
    assert "+ train.batch: 4" in page


def test_a_healthy_run_has_a_page_without_pictures():
    page = incident_page(
        incident(verdict="healthy", lanes=(), happenings=(), logs=(), mendings=(), done=())
    )
    assert "Ranks over time" not in page
    assert "healthy" in page


def test_the_break_off_point_is_on_the_lane_of_the_root():
    picture = draw_lanes(incident().lanes, 0.0, "here")
    ring = float(re.search(r'class="break" cx="[\d.]+" cy="([\d.]+)"', picture)[1])
    lane = float(re.search(r'<text class="root" x="\d+" y="(\d+)"', picture)[1])
    assert abs(ring - lane) < 6


def test_a_rank_that_ended_has_a_cross():
    assert draw_lanes(incident().lanes, 0.0, "here").count('class="end"') == 1


def test_the_hash_of_the_style_fits_the_page():
    import base64
    import hashlib

    style = re.search(r"<style>(.*)</style>", incident_page(incident()), re.DOTALL)[1]
    made = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert style_hash() == f"sha256-{made}"


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e5)), max_size=5),
    st.none() | st.floats(-1e6, 1e6),
)
def test_every_picture_stays_inside_its_frame(stretches, break_at):
    made = tuple(Span(start=a, end=a + b, kind="work", title="x") for a, b in stretches)
    picture = draw_lanes((Lane(rank=0, spans=made, is_root=True),), break_at, "x")
    for x, width in re.findall(
        r'<rect class="work" x="([\d.-]+)" y="[\d.]+" width="([\d.]+)"', picture
    ):
        assert 0 <= float(x) <= float(x) + float(width) <= 1121
