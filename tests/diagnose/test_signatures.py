import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose import FAULTS
from cnai.diagnose.repairs import REPAIRS
from cnai.diagnose.signatures import SIGNATURES, Role, match_line


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("OSError: [Errno 122] Disk quota exceeded", "disk_full"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host_oom"),
        ("python[71]: segfault; Segmentation fault (core dumped)", "native_crash"),
        ("DistStoreError: Timed out after 61 seconds waiting for clients.", "rendezvous_failure"),
        ("safetensors_rust.SafetensorError: MetadataIncompleteBuffer", "ckpt_corrupt"),
        ("Application timeout caused pair closure", "collective_timeout"),
        ("step 12 | loss: nan | grad_norm: nan", "nan_loss"),
        ("stack expects each tensor to be equal size", "data_error"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "peer_gone"),
        ("Failed to recv, got 0 bytes. Connection was likely closed.", "peer_gone"),
    ],
)
def test_a_line_is_recognised(line, fault):
    assert match_line(line).fault == fault


@pytest.mark.parametrize(
    "line",
    [
        "step 100 loss 2.31 grad_norm 0.9",
        "retrying after Connection reset by peer (2 of 5)",
        "hint: Permission denied? consider chmod",
        "UserWarning: port 80 is in use; falling back to 81",
        "informing nanny about the influx",
        "finance loss information",
        "saved checkpoint of step 40",
        "",
    ],
)
def test_a_harmless_line_is_not(line):
    assert match_line(line) is None


def test_soft_words_do_not_excuse_a_line_that_ended_the_process():
    assert match_line("MemoryError: consider less", sure=True).fault == "host_oom"


@given(st.text(max_size=300))
def test_any_text_can_be_matched(text):
    found = match_line(text)
    assert found is None or found in SIGNATURES


def test_every_fault_has_an_entry_of_repairs():
    assert set(REPAIRS) == FAULTS


def test_losing_a_peer_is_never_a_fault():
    assert "peer_gone" not in FAULTS
    assert {row.fault for row in SIGNATURES if row.role is Role.CASCADE} == {"peer_gone"}
