"""What the ranks print, merged while it is written."""

from cnai.core.runfolder import RunFolder
from cnai.flows.logs import LogFollower, follow_logs


def folder(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    for rank in (0, 1):
        run.rank_log(rank).write_text("old\n")
    return run


def say(run, rank, text):
    with run.rank_log(rank).open("a") as log:
        log.write(text)


def test_new_lines_of_all_ranks_come_with_their_names(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run)
    say(run, 0, "a\n")
    say(run, 1, "b\nc\n")
    assert logs.read() == [("rank-0", "a"), ("rank-1", "b"), ("rank-1", "c")]
    assert logs.read() == []


def test_a_line_that_is_still_written_waits_for_its_end(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run, rank=0)
    say(run, 0, "half")
    assert logs.read() == []
    say(run, 0, " whole\nnext")
    assert logs.read() == [("rank-0", "half whole")]


def test_a_log_that_appears_later_is_read_from_its_beginning(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run)
    run.rank_log(2).write_text("new rank\n")
    assert logs.read() == [("rank-2", "new rank")]


def test_a_flood_is_read_in_pieces_and_nothing_is_lost(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run)
    lines = [f"line {number}" for number in range(30_000)]
    say(run, 0, "\n".join(lines) + "\n")
    pieces = []
    while piece := logs.read():
        pieces.append(piece)
    assert max(sum(len(line) for _, line in piece) for piece in pieces) <= 1 << 16
    assert [line for piece in pieces for _, line in piece] == lines


def test_a_line_longer_than_a_piece_is_cut_and_not_waited_for_for_ever(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run)
    say(run, 0, "x" * 100_000 + "\n")
    assert (
        "".join(line for piece in (logs.read(), logs.read()) for _, line in piece) == "x" * 100_000
    )


def test_a_log_that_was_cut_is_read_again_from_its_beginning(tmp_path):
    run = folder(tmp_path)
    logs = LogFollower(run)
    run.rank_log(0).write_text("z\n")
    assert logs.read() == [("rank-0", "z")]


class Hands:
    """A clock whose sleep lets the ranks write."""

    def __init__(self, *deeds):
        self._deeds = iter(deeds)

    def now(self):
        return 0.0

    def monotonic(self):
        return 0.0

    def sleep(self, seconds):
        next(self._deeds)()


def test_following_ends_with_the_run_and_misses_no_last_word(tmp_path):
    run = folder(tmp_path)
    lock = run.locked()
    lock.__enter__()

    def end():
        say(run, 1, "last\n")
        lock.__exit__(None, None, None)

    hands = Hands(lambda: say(run, 0, "first\n"), end)
    found = list(follow_logs(run, rank=None, clock=hands))
    assert found == [("rank-0", "first"), ("rank-1", "last")]
