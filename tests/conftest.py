"""What all tests take for granted of the process they run in."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """Ctrl-C is heard, also by processes that tests start: background jobs of a shell inherit that it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
