"""The file that agents run: `<python> -I -S launch.py <command>`. It loads `hook.py` and nothing else.

Python does not cache the compiled form of the file it is started with, and compiling the hook at every event would take
a third of its total time. So this file is tiny and loads `hook.py` like a module, from `__pycache__`. It also answers
the agent while an upgrade is replacing `hook.py`.
"""

import _frozen_importlib_external
import posix
import sys


def main() -> None:
    """Run the hook and exit with 0, whatever happens."""
    try:
        path = __file__.rpartition("/")[0] + "/hook.py"
        hook = type(sys)("hook")
        hook.__file__ = path
        _frozen_importlib_external.SourceFileLoader("hook", path).exec_module(hook)
        hook.main(sys.argv)
    except BaseException:
        takes_fields = sys.argv[1:2] != ["compact"] and sys.argv[3:4] in ([], [""], ["claude"])
        _answer(b'{"continue": true, "suppressOutput": true}' if takes_fields else b"{}")
    posix._exit(0)


def _answer(text: bytes) -> None:
    try:
        posix.write(1, text)
    except OSError:
        pass  # stdout is closed


if __name__ == "__main__":
    main()
