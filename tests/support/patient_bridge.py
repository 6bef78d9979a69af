"""The bridge with time to spare: `<python> -I -S patient_bridge.py [data directory]`, as `bridge.py` is run.

The first question of a client makes a new worker import the protocol library, which takes a busy machine longer than the
2 s that the bridge waits. See `patient_hook.py` for why this is a file of its own and no setting.
"""

import sys

SECONDS = 60.0
LIMITS = ("START_SECONDS", "CACHED_METHOD_SECONDS")


def main() -> None:
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0].rpartition("/")[0] + "/src")
    from claude_mem import bridge

    for name in LIMITS:
        assert getattr(bridge, name) < SECONDS  # a limit that was renamed would go unnoticed
        setattr(bridge, name, SECONDS)
    bridge.main(sys.argv)


if __name__ == "__main__":
    main()
