"""The file that agents run: `<python> -I -S launch.py <command>`. It loads `hook.py` and nothing else.

Python never keeps the compiled form of the file it is told to run, and compiling the hook at every event would cost a
third of all it costs. So this file is tiny, and the real one is loaded the way modules are, from `__pycache__`. It is
also what answers while an upgrade has the real one in pieces.
"""

import _frozen_importlib_external
import posix
import sys


def main() -> None:
    try:
        path = __file__.rpartition("/")[0] + "/hook.py"
        hook = type(sys)("hook")
        hook.__file__ = path
        _frozen_importlib_external.SourceFileLoader("hook", path).exec_module(hook)
        hook.main(sys.argv)
    except BaseException:
        nods = sys.argv[1:2] != ["compact"] and sys.argv[3:4] in ([], [""], ["claude"])
        _answer(b'{"continue": true, "suppressOutput": true}' if nods else b"{}")
    posix._exit(0)


def _answer(text: bytes) -> None:
    try:
        posix.write(1, text)
    except OSError:
        pass  # nobody is listening


if __name__ == "__main__":
    main()
