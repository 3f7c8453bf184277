import pytest

from cnai.core.errors import SpecError
from cnai.monitor.panel.access import Access, is_loopback

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_this_machine_needs_no_token(host):
    assert Access.of(host, None) == Access(None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.4", "example.org", ""])
def test_other_machines_need_one(host):
    with pytest.raises(SpecError, match="no token") as caught:
        Access.of(host, None)
    assert "CNAI_MONITOR_TOKEN" in caught.value.hint


def test_a_short_token_is_refused():
    with pytest.raises(SpecError, match="can be guessed"):
        Access.of("0.0.0.0", "secret")


def test_a_good_token_opens_other_addresses():
    assert Access.of("0.0.0.0", TOKEN).token == TOKEN


def test_a_name_is_not_taken_for_loopback():
    assert not is_loopback("localhost.example.org")
