"""The signals that tests and what they start can rely on, however the run was started."""

from __future__ import annotations

import signal

# Python ignores these itself, and `subprocess` gives them back to its children.
_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)


def give_back() -> None:
    """Let children start with every signal at its default, as from a terminal.

    `make test &`, `nohup` and many runners start programs with SIGINT or SIGHUP ignored, and whatever is ignored, children
    ignore too: then nothing can be interrupted in a test. An empty handler goes on ignoring the signal here, because
    whoever started the run so wanted that, but it is not inherited by a program that is started.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals():
        if number not in _PYTHONS_OWN and signal.getsignal(number) is signal.SIG_IGN:
            # With SIGCHLD ignored, the exit codes of children would be lost.
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else _ignore)


def _ignore(*_: object) -> None:
    pass
