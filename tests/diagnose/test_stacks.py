import pytest

from cnai.diagnose.stacks import crash_frame, frame_of, main_thread, phase_of, read_stacks

DUMP = """main 0x00000000000000aa
Thread 0x00000000000000bb (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00000000000000aa (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 1 in recv
  File "/home/me/store.py", line 7 in fetch
  File "/x/cnai/train/loop.py", line 9 in step
"""
CRASH = """step 8
Fatal Python error: Segmentation fault

Thread 0x00000000000000bb (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00000000000000aa (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/kernel.py", line 3 in launch

Extension modules: numpy
"""


def test_the_stack_of_each_thread_is_read_with_the_innermost_first():
    stacks = read_stacks(DUMP)
    assert list(stacks) == ["0xbb", "0xaa"]
    assert stacks["0xaa"][1] == "/home/me/store.py:7 fetch"


def test_the_main_thread_is_named_by_the_first_line():
    assert main_thread(DUMP) == "0xaa"


def test_a_file_without_that_line_names_no_main_thread():
    assert main_thread("") is None


def test_a_thread_that_was_dumped_twice_is_taken_as_it_was_last():
    again = 'Thread 0xaa (most recent call first):\n  File "/b.py", line 2 in g\n'
    assert read_stacks(DUMP + again)["0xaa"] == ("/b.py:2 g",)


def test_the_users_frame_is_named_before_ours_and_the_librarys():
    assert frame_of(read_stacks(DUMP)["0xaa"]) == "/home/me/store.py:7"


def test_our_frame_is_named_before_the_librarys():
    assert frame_of(["/usr/lib/python3.11/a.py:1 f", "/x/cnai/b.py:2 g"]) == "/x/cnai/b.py:2"


def test_a_librarys_frame_is_better_than_none():
    assert frame_of(["/usr/lib/python3.11/a.py:1 f"]) == "/usr/lib/python3.11/a.py:1"


def test_without_frames_there_is_none():
    assert frame_of([]) is None


@pytest.mark.parametrize(
    ("stack", "told", "phase"),
    [
        (("/v/torch/distributed/distributed_c10d.py:1 all_reduce",), "forward", "collective"),
        (("/v/torch/distributed/distributed_c10d.py:1 barrier",), "data", "collective"),
        (("/home/me/store.py:7 fetch",), "data", "data"),
        (("/v/torch/autograd/graph.py:3 _engine_run_backward",), "forward", "backward"),
        (("/x/cnai/train/optimizer.py:3 step",), "forward", "update"),
        (("/x/cnai/train/evaluation.py:3 measure",), "after", "evaluate"),
        (("/x/cnai/train/checkpoint.py:3 save",), "after", "save"),
        (("/x/cnai/train/checkpoint.py:3 load",), "start", "load"),
        ((), "forward", "forward"),
    ],
)
def test_the_phase_follows_from_the_stack(stack, told, phase):
    assert phase_of(stack, told) == phase


def test_the_frame_of_a_crash_is_read_from_the_log():
    assert crash_frame(CRASH.splitlines()) == "/home/me/kernel.py:3"


def test_a_crash_of_a_thread_without_python_names_where_the_main_thread_waited():
    text = CRASH.replace("Current thread", "Thread")
    assert crash_frame(text.splitlines()) == "/home/me/kernel.py:3"


def test_a_log_without_a_crash_names_no_frame():
    assert crash_frame(["step 1", "step 2"]) is None
