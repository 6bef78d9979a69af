"""How many modules one event passes on its way into memory, and how many one erase passes on the way out.

    python bench/walk.py

Every function of `claude_mem` that the worker enters is counted, in a throw-away data directory, with words only. The hook's
own two files are not counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import claude_mem
from claude_mem.config import load_lenient
from claude_mem.worker.app import Service

PACKAGE = str(Path(claude_mem.__file__).parent) + "/"
PAYLOADS = (
    ("new", {"hook_event_name": "UserPromptSubmit", "prompt": "Round prices half up"}),
    (
        "save",
        {
            "hook_event_name": "PostToolUse", "tool_name": "Edit", "tool_use_id": "t1", "tool_response": "ok",
            "tool_input": {"file_path": "price.py", "old_string": "round(x)", "new_string": "half_up(x)"},
        },
    ),
    ("summary", {"hook_event_name": "Stop", "last_assistant_message": "Prices are now rounded half up in `price.py`."}),
)  # fmt: skip


class Trace:
    """The functions of ours that are entered, by the name of the part of the walk. Installed before any thread starts."""

    def __init__(self) -> None:
        self.parts: dict[str, set[tuple[str, str]]] = {}
        self.part = ""

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if (
            self.part
            and event == "call"
            and frame.f_code.co_filename.startswith(PACKAGE)
            and frame.f_code.co_name[0] != "<"
        ):
            name = (frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname)
            self.parts.setdefault(self.part, set()).add(name)


def hand_over(data: Path, folder: Path) -> None:
    """Let the real hook write the spool files of one turn."""
    for command, payload in PAYLOADS:
        subprocess.run(
            [sys.executable, "-I", "-S", PACKAGE + "launch.py", command],
            input=json.dumps({"session_id": "walk", "cwd": str(folder), **payload}).encode(),
            env={"CLAUDE_MEM_DATA_DIR": str(data), "HOME": str(data)},
            stdout=subprocess.DEVNULL,
            check=True,
        )


async def walk(data: Path, trace: Trace) -> None:
    trace.part = "one turn, from spool files to the start context"
    service = Service(load_lenient(data_dir=data).config)
    try:
        await service.run_until_idle()
        trace.part = "one erase"
        await service.erase(1)
    finally:
        trace.part = ""
        service.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        data, folder = Path(place) / "data", Path(place) / "project"
        data.mkdir(mode=0o700)
        folder.mkdir()
        (data / "worker.starting").touch()  # the hook starts no worker of its own
        hand_over(data, folder)
        trace = Trace()
        threading.setprofile(trace)
        sys.setprofile(trace)
        asyncio.run(walk(data, trace))
    print("| path | functions | modules |\n|---|--:|--:|")
    for name, functions in trace.parts.items():
        print(f"| {name} | {len(functions)} | {len({module for module, _ in functions})} |")


if __name__ == "__main__":
    main()
