"""The hook with time to spare: `<python> -I -S patient_hook.py <command>`, as `launch.py` is run.

A hook gives up after a moment (150 ms for an answer of the worker) so that it holds nobody up. On a busy machine that
moment is too short for any test of what the worker answers. This file loads the same hook, raises its limits and runs it;
the production hook has no switch for that, which a project's environment could abuse. Where a limit or the launching
itself is the subject, tests run `launch.py` (`tests.support.lab.LAUNCH`).
"""

import _frozen_importlib_external
import sys

SECONDS = 60.0
LIMITS = ("READ_SECONDS", "WORK_SECONDS", "ASK_SECONDS")


def main() -> None:
    path = __file__.rpartition("/")[0].rpartition("/")[0].rpartition("/")[0] + "/src/claude_mem/hook.py"
    hook = type(sys)("hook")
    hook.__file__ = path
    _frozen_importlib_external.SourceFileLoader("hook", path).exec_module(hook)
    for name in LIMITS:
        assert getattr(hook, name) < SECONDS  # a limit that was renamed would go unnoticed
        setattr(hook, name, SECONDS)
    hook.main(sys.argv)


if __name__ == "__main__":
    main()
