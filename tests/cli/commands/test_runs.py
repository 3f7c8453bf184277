from inline_snapshot import snapshot

from cnai.core.events import AttemptStarted, RunEnded, StepDone
from cnai.core.runfolder import RunFolder


def started(time, **changes):
    fields = {
        "attempt": 0, "ranks": 2, "steps": 10, "plan_digest": "d",
        "layout": "dp2 x tp1 x pp1", "resumed_step": 0, **changes,
    }  # fmt: skip
    return AttemptStarted(time_unix=time, **fields)


def step(time, number, loss):
    return StepDone(
        time_unix=time, rank=0, attempt=0, step=number, loss=loss, grad_norm=1.0,
        update_ratio=None, learning_rate=0.1, tokens=8, step_seconds=1.0, data_wait_seconds=0.0,
    )  # fmt: skip


def a_run(root, *events):
    run = RunFolder.create(root)
    with run.writer("agent") as writer:
        for event in events:
            writer.write(event)
    return run


def test_runs_are_listed_with_state_step_and_loss(ai_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    a_run(tmp_path / "runs" / "b", started(100.0), step(101.0, 3, 2.5))
    a_run(
        tmp_path / "runs" / "a",
        started(50.0),
        step(51.0, 10, float("nan")),
        RunEnded(time_unix=60.0, outcome="done", step=10, seconds=10.0),
    )
    a_run(tmp_path / "runs" / "c")
    rows = [line.split("  ") for line in ai_cli("runs").out.splitlines()]
    assert [[cell.strip() for cell in row if cell][:4] for row in rows] == snapshot(
        [
            ["name", "state", "step", "loss"],
            ["a", "done", "10/10", "nan"],
            ["b", "broken off", "3/10", "2.5000"],
            ["c", "new", "0/0", "-"],
        ]
    )


def test_json_lists_them_too(ai_cli, tmp_path):
    a_run(tmp_path / "runs" / "a", started(50.0), step(51.0, 3, float("inf")))
    (only,) = ai_cli("runs", "--json").json["runs"]
    assert (only["status"], only["loss"], only["steps"]) == ("broken off", "inf", 10)


def test_no_runs_are_no_error(ai_cli):
    ran = ai_cli("runs")
    assert (ran.code, ran.out, ran.err) == snapshot(
        (
            0,
            "",
            """\
no runs in `runs`
hint: start one with `ai-cli run SPEC`, or name another folder
""",
        )
    )


def test_no_runs_are_an_empty_list(ai_cli):
    assert ai_cli("runs", "there", "--json").json == {"folder": "there", "runs": []}


def test_a_damaged_event_file_does_not_hide_the_runs(ai_cli, tmp_path):
    run = a_run(tmp_path / "runs" / "a", started(50.0))
    (run.events / "rank-0.jsonl").write_bytes(b'\xff\x00{"kind": "StepDone", "v": 1}\n{"torn')
    assert "broken off" in ai_cli("runs").out
