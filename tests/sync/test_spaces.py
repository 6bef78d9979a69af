"""Two machines with real workers and one memory: what one remembered, the other finds, and the transport learns nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from claude_mem.client import Client
from claude_mem.domain.errors import ClaudeMemError, OperationFailed
from claude_mem.sync.segments import SegmentLog, decode_frames, encode_frame, segment_name
from tests.support.lab import MEM, Lab
from tests.support.machines import SECRET_WORD, found, machine, mem, save, status, sync
from tests.support.space_server import space_server
from tests.support.waiting import wait_for


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "laptop")) as lab:
        lab.start()
        yield lab


@pytest.fixture
def desktop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "desktop")) as lab:
        lab.start()
        yield lab


@pytest.fixture(params=["folder", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "place"
    if request.param == "git":
        subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    else:
        path.mkdir()
    return path


def create(lab: Lab, place: Path) -> str:
    """Create the space and return its phrase."""
    made = json.loads(lab.mem("space", "create", "mine", "--at", str(place), "--machine", "laptop", "--json").stdout)
    assert len(made["phrase"].split()) == 24
    sync(lab)
    return str(made["phrase"])


def join(lab: Lab, place: Path, phrase: str, name: str = "desktop", ok: bool = True) -> Any:
    return mem(lab, "space", "join", str(place), "--machine", name, stdin=phrase + "\n", ok=ok)


def test_what_one_machine_remembered_the_other_finds(laptop: Lab, desktop: Lab, place: Path) -> None:
    save(laptop, f"Deploys need the {SECRET_WORD}", f"Without the {SECRET_WORD} the deploy fails.")
    phrase = create(laptop, place)
    laptop.project.rename(laptop.folder / "elsewhere")  # on another machine it does not exist
    join(desktop, place, phrase)
    assert found(desktop, SECRET_WORD) == [f"Deploys need the {SECRET_WORD}"]
    assert found(laptop, SECRET_WORD) == [f"Deploys need the {SECRET_WORD}"]
    brief = desktop.hook("SessionStart", source="startup")
    assert SECRET_WORD in json.dumps(brief)
    assert [SECRET_WORD in text for text in all_bytes(place)] == [False] * len(all_bytes(place))
    seen = status(laptop)
    assert [machine["name"] for machine in sync(laptop)["machines"]] == ["laptop", "desktop"]
    assert (seen["problems"], seen["offline"], seen["conflicts"]) == ([], "", 0)


def all_bytes(place: Path) -> list[str]:
    """Everything at the transport, also what git has compressed."""
    texts = [path.read_bytes().decode("latin-1") + str(path) for path in place.rglob("*") if path.is_file()]
    if (place / "objects").is_dir():
        arguments = ["git", f"--git-dir={place}", "cat-file", "--batch-all-objects", "--batch"]
        texts.append(subprocess.run(arguments, capture_output=True, check=True).stdout.decode("latin-1"))
    return texts


def test_a_deletion_reaches_the_other_machine_and_does_not_come_back(laptop: Lab, desktop: Lab, place: Path) -> None:
    save(laptop, f"Deploys need the {SECRET_WORD}", "They fail without it.")
    save(laptop, "The staging host is tall-otter", "It is restarted at night.")
    join(desktop, place, create(laptop, place))
    assert found(desktop, SECRET_WORD) != []
    (row,) = [item for item in laptop.client().get("/api/observations")["items"] if SECRET_WORD in item["title"]]
    laptop.mem("forget", str(row["id"]), "--yes")
    sync(laptop)
    sync(desktop)
    for lab in (laptop, desktop):
        sync(lab)
        assert found(lab, SECRET_WORD) == []
        assert found(lab, "tall-otter") == ["The staging host is tall-otter"]


def test_the_phrase_of_another_space_is_refused_before_anything_is_uploaded(
    laptop: Lab, desktop: Lab, place: Path, tmp_path: Path
) -> None:
    save(desktop, "Only on the desktop", f"The {SECRET_WORD} stays here.")
    (tmp_path / "other").mkdir()
    wrong = json.loads(desktop.mem("space", "create", "other", "--at", str(tmp_path / "other"), "--json").stdout)[
        "phrase"
    ]
    create(laptop, place)
    before = sorted(all_bytes(place))
    done = join(desktop, place, wrong, ok=False)
    assert done.returncode == 1
    assert "the recovery phrase does not fit; the machine 'laptop' has the right one" in done.stderr
    assert "nothing was uploaded" in done.stderr
    assert sorted(all_bytes(place)) == before
    assert [each["name"] for each in map(json.loads, desktop.mem("space", "list", "--json").stdout.splitlines())] == [
        "other"
    ]
    assert len(list((desktop.data / "spaces").glob("*.key"))) == 1
    done = join(desktop, place, "not a phrase", ok=False)
    assert (done.returncode, "24 words, not 3" in done.stderr) == (2, True)


def test_offline_is_normal_and_the_next_exchange_continues(laptop: Lab, desktop: Lab, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    join(desktop, place, create(laptop, place))
    place.rename(tmp_path / "unmounted")
    save(laptop, f"Written offline: {SECRET_WORD}", "It waits.")
    done = laptop.mem("space", "sync", ok=False)
    assert (done.returncode, "is not there" in done.stderr) == (1, True)
    seen = status(laptop)
    assert (seen["problems"], "is not there" in seen["offline"]) == ([], True)
    checks = [json.loads(line) for line in laptop.mem("doctor", "--json", ok=False).stdout.splitlines()]
    (check,) = [check for check in checks if check["name"] == "space"]
    assert (check["level"], "is not there" in check["found"]) == ("warn", True)
    (tmp_path / "unmounted").rename(place)
    sync(laptop)
    sync(desktop)
    assert found(desktop, SECRET_WORD) == [f"Written offline: {SECRET_WORD}"]
    assert status(laptop)["offline"] == ""


def test_the_worker_exchanges_after_a_turn_by_itself(tmp_path: Path, folder: Path) -> None:
    with closing(machine(tmp_path, "laptop")) as laptop, closing(machine(tmp_path, "desktop")) as desktop:
        for lab in (laptop, desktop):
            lab.change += "; from claude_mem.worker import spaces; spaces.SETTLE_SECONDS = 0.05"
            lab.start()
        join(desktop, folder, create(laptop, folder))
        laptop.hook("UserPromptSubmit", prompt=f"Why does the {SECRET_WORD} rattle?")
        laptop.hook("Stop", last_assistant_message=f"The {SECRET_WORD} rattles because a screw is missing.")
        device = status(laptop)["device"]
        before = status(desktop)["machines"][0]["here"]

        def head() -> int:
            return max((SegmentLog(log).head() for log in folder.glob(f"claude-mem-*/logs/{device}")), default=0)

        wait_for(lambda: head() > before, lambda: status(laptop))
        sync(desktop)
        assert status(desktop)["machines"][0]["here"] > before


def test_a_server_carries_a_space_too(laptop: Lab, desktop: Lab) -> None:
    with space_server() as server:
        save(laptop, f"About {SECRET_WORD}", "One.")
        done = mem(laptop, "space", "create", "mine", "--at", server.url, "--json", stdin="one-time-code\n")
        made = json.loads(done.stdout)
        sync(laptop)
        done = mem(
            desktop, "space", "join", f"{server.url}#{made['id']}", stdin=f"wrong-code\n{made['phrase']}\n", ok=False
        )
        assert "the code was used or is wrong" in done.stderr
        mem(desktop, "space", "join", f"{server.url}#{made['id']}", stdin=f"one-time-code\n{made['phrase']}\n")
        assert found(desktop, SECRET_WORD) == [f"About {SECRET_WORD}"]
        stored = [*server.manifests.values(), *(entry for log in server.logs.values() for entry in log)]
        assert len(stored) > 2
        assert not any(SECRET_WORD.encode() in body for body in stored)
        lost = next(machine["device"] for machine in sync(laptop)["machines"] if not machine["own"])
        laptop.mem("space", "revoke", lost, "--yes")
        assert server.revoked == [lost]


# --- what a transport can do -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def log_of(folder: Path, lab: Lab) -> Path:
    device = status(lab)["device"]
    (path,) = folder.glob(f"claude-mem-*/logs/{device}/*.seg")
    return path


def entries_of(path: Path) -> list[bytes]:
    return decode_frames(path.read_bytes())[0]


def test_a_log_that_was_tampered_with_is_named_and_the_others_continue(
    laptop: Lab, desktop: Lab, tmp_path: Path, folder: Path
) -> None:
    phrase = create(laptop, folder)
    join(desktop, folder, phrase)
    for number in range(4):
        save(laptop, f"Fact {number}", f"About {SECRET_WORD} {number}.")
    sync(laptop)
    path = log_of(folder, laptop)
    good = entries_of(path)
    at = status(desktop)["machines"][0]["here"]
    assert at < len(good)
    flipped = good[at][:200] + bytes([good[at][200] ^ 1]) + good[at][201:]
    swapped = [*good[:at], good[at + 1], good[at], *good[at + 2 :]]
    for code, bad in (
        ("Forged", [*good[:at], flipped, *good[at + 1 :]]),
        ("Reordered", swapped),
        ("Reordered", [*good[:at], good[at - 1], *good[at:]] if at else swapped),
        ("Reordered", [*good[:at], *good[at + 1 :]]),
    ):
        path.write_bytes(b"".join(map(encode_frame, bad)))
        seen = sync(desktop, ok=False)
        assert [(each["code"], each["machine"]) for each in seen["problems"]] == [(code, "laptop")]
        assert seen["machines"][0]["here"] == at
    path.write_bytes(b"".join(map(encode_frame, good)))
    assert sync(desktop)["problems"] == []
    assert sorted(found(desktop, SECRET_WORD)) == [f"Fact {number}" for number in range(4)]


def test_a_transport_that_lost_its_newest_data_gets_it_again_and_it_is_said(
    laptop: Lab, desktop: Lab, folder: Path
) -> None:
    join(desktop, folder, create(laptop, folder))
    save(laptop, f"About {SECRET_WORD}", "One.")
    sync(laptop)
    sync(desktop)
    path = log_of(folder, laptop)
    whole = path.read_bytes()
    path.write_bytes(encode_frame(entries_of(path)[0]))
    seen = sync(desktop, ok=False)
    assert [(each["code"], each["machine"]) for each in seen["problems"]] == [("Truncated", "laptop")]
    seen = sync(laptop)
    assert [note["code"] for note in seen["notes"]] == ["Truncated"]
    assert path.read_bytes() == whole
    assert sync(desktop)["problems"] == []
    assert found(desktop, SECRET_WORD) == [f"About {SECRET_WORD}"]


def test_a_transport_that_lost_the_space_is_only_filled_again_when_asked(
    laptop: Lab, desktop: Lab, folder: Path
) -> None:
    save(laptop, f"About {SECRET_WORD}", "One.")
    join(desktop, folder, create(laptop, folder))
    (inside,) = folder.iterdir()
    inside.rename(folder.parent / "lost")
    seen = sync(laptop, ok=False)
    assert [each["code"] for each in seen["problems"]] == ["SpaceLost"]
    assert list(folder.iterdir()) == []
    laptop.mem("space", "sync", "--restore")
    assert sync(desktop)["problems"] == []
    assert [machine["there"] for machine in sync(laptop)["machines"]] == [
        machine["there"] for machine in status(laptop)["machines"]
    ]
    save(desktop, "After the loss", f"It goes on with the {SECRET_WORD}.")
    sync(desktop)
    sync(laptop)
    assert len(found(laptop, SECRET_WORD)) == 2


def test_an_old_list_of_machines_is_put_right(laptop: Lab, desktop: Lab, folder: Path) -> None:
    phrase = create(laptop, folder)
    (manifest,) = folder.glob("claude-mem-*/manifest")
    old = manifest.read_bytes()
    join(desktop, folder, phrase)
    sync(laptop)
    manifest.write_bytes(old)
    seen = sync(laptop)
    assert [machine["name"] for machine in seen["machines"]] == ["laptop", "desktop"]
    assert [note["code"] for note in seen["notes"]] == ["Truncated"]
    assert manifest.read_bytes() != old
    assert sync(desktop)["problems"] == []


def test_a_log_that_no_machine_of_the_space_added_is_ignored(laptop: Lab, folder: Path) -> None:
    create(laptop, folder)
    (logs,) = folder.glob("claude-mem-*/logs")
    (logs / ("ab" * 8)).mkdir()
    (logs / ("ab" * 8) / segment_name(1)).write_bytes(encode_frame(b"hello" * 100))
    seen = sync(laptop, ok=False)
    assert [(each["code"], "ab" * 8 in each["message"]) for each in seen["problems"]] == [("Forged", True)]


# --- machines --------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_data_directory_and_its_original_both_go_on(laptop: Lab, tmp_path: Path, folder: Path) -> None:
    save(laptop, f"Before the copy: {SECRET_WORD}", "One.")
    create(laptop, folder)
    laptop.close()
    copy = machine(tmp_path, "copy")
    shutil.copytree(laptop.data, copy.data)
    with closing(copy):
        for lab, title in ((laptop, "On the original"), (copy, "On the copy")):
            lab.start()
            save(lab, f"{title}: {SECRET_WORD}", "Two.")
        sync(laptop)
        seen = sync(copy)
        assert [note["code"] for note in seen["notes"]] == ["TwoWriters"]
        assert seen["device"] != status(laptop)["device"]
        sync(laptop)
        sync(copy)
        for lab in (laptop, copy):
            assert sorted(found(lab, SECRET_WORD)) == sorted(
                f"{title}: {SECRET_WORD}" for title in ("Before the copy", "On the copy", "On the original")
            )
            assert status(lab)["problems"] == []


def test_a_database_that_was_restored_goes_on_under_a_new_id_and_loses_nothing(
    laptop: Lab, desktop: Lab, folder: Path
) -> None:
    save(laptop, f"Before the backup: {SECRET_WORD}", "One.")
    join(desktop, folder, create(laptop, folder))
    backup = json.loads(laptop.mem("backup", "--json").stdout)
    save(laptop, f"After the backup: {SECRET_WORD}", "Two.")
    sync(laptop)
    laptop.mem("restore", backup["path"], "--yes")
    save(laptop, f"After the restore: {SECRET_WORD}", "Three.")
    for lab in (laptop, desktop, laptop):
        sync(lab)
    expected = sorted(
        f"{when}: {SECRET_WORD}" for when in ("Before the backup", "After the backup", "After the restore")
    )
    assert sorted(found(laptop, SECRET_WORD)) == expected
    assert sorted(found(desktop, SECRET_WORD)) == expected


def test_a_lost_machine_reads_and_writes_nothing_any_more(
    laptop: Lab, desktop: Lab, tmp_path: Path, folder: Path
) -> None:
    phrase = create(laptop, folder)
    with closing(machine(tmp_path, "tablet")) as tablet:
        tablet.start()
        join(desktop, folder, phrase)
        join(tablet, folder, phrase, "tablet")
        save(tablet, f"From the tablet: {SECRET_WORD}", "Before it was lost.")
        sync(tablet)
        sync(laptop)
        done = laptop.mem("space", "revoke", "tablet", ok=False)
        assert (done.returncode, "nothing was changed" in done.stderr) == (1, True)
        laptop.mem("space", "revoke", "tablet", "--yes")
        save(laptop, f"After the loss: {SECRET_WORD}", "Not for the tablet.")
        sync(laptop)
        save(tablet, f"By the thief: {SECRET_WORD}", "Poison.")
        seen = sync(tablet, ok=False)
        assert [each["code"] for each in seen["problems"]] == ["Revoked"]
        assert "After the loss" not in str(found(tablet, SECRET_WORD))
        seen = sync(desktop)
        assert (seen["epoch"], [machine["until"] is None for machine in seen["machines"]]) == (2, [True, True, False])
        wanted = sorted([f"From the tablet: {SECRET_WORD}", f"After the loss: {SECRET_WORD}"])
        assert sorted(found(desktop, SECRET_WORD)) == wanted
        done = join(tablet, folder, phrase, "tablet", ok=False)
        assert "from before the key was replaced; the machine 'laptop' has the right one" in done.stderr
        new_phrase = laptop.mem("space", "phrase", "--yes", "--json").stdout
        assert json.loads(new_phrase)["phrase"] != phrase
        assert json.loads(desktop.mem("space", "phrase", "--yes", "--json").stdout) == json.loads(new_phrase)


def test_leaving_keeps_the_memory_and_deletes_the_keys(laptop: Lab, desktop: Lab, folder: Path) -> None:
    save(laptop, f"About {SECRET_WORD}", "One.")
    join(desktop, folder, create(laptop, folder))
    desktop.mem("space", "leave", "--yes")
    assert list((desktop.data / "spaces").iterdir()) == []
    assert found(desktop, SECRET_WORD) == [f"About {SECRET_WORD}"]
    assert desktop.mem("space", "list", "--json").stdout == ""
    seen = sync(laptop)
    assert [machine["until"] is None for machine in seen["machines"]] == [True, False]


def test_only_selected_projects_leave_the_machine(laptop: Lab, desktop: Lab, tmp_path: Path, folder: Path) -> None:
    phrase = create(laptop, folder)
    save(laptop, "The shop has a till", "Its project is known now.")
    done = mem(laptop, "space", "projects", str(laptop.project), stdin="")
    assert "shared: " in done.stdout
    private = tmp_path / "private"
    subprocess.run(["git", "init", "--quiet", str(private)], check=True)
    laptop.client().post("/api/memory/save", {"text": f"The {SECRET_WORD}.", "title": "Private", "cwd": str(private)})
    sync(laptop)
    join(desktop, folder, phrase)
    assert found(desktop, "till") == ["The shop has a till"]
    assert found(desktop, SECRET_WORD) == []
    laptop.mem("space", "projects", "all")
    sync(laptop)
    sync(desktop)
    assert found(desktop, SECRET_WORD) == ["Private"]


@pytest.mark.kills
def test_killed_between_two_ids_the_machine_goes_on(laptop: Lab, folder: Path, record_property: Any) -> None:
    create(laptop, folder)
    backup = json.loads(laptop.mem("backup", "--json").stdout)
    save(laptop, f"After the backup: {SECRET_WORD}", "Two.")
    sync(laptop)
    laptop.mem("restore", backup["path"], "--yes")
    save(laptop, f"After the restore: {SECRET_WORD}", "Three.")
    assert exchange_until_killed(laptop, "sync.new_device")
    record_property("kills", 1)
    sync(laptop)
    assert sorted(found(laptop, SECRET_WORD)) == [f"After the {what}: {SECRET_WORD}" for what in ("backup", "restore")]
    assert len(list((laptop.data / "spaces").glob("*.key"))) == 1


# --- keys and who may change what ------------------------------------------------------------------------------------


def test_no_key_passes_through_http_and_only_a_terminal_changes_a_space(laptop: Lab, folder: Path) -> None:
    create(laptop, folder)
    (path,) = (laptop.data / "spaces").glob("*.key")
    keys = json.loads(path.read_bytes())
    texts = json.dumps([laptop.client().get("/api/spaces"), laptop.client().get("/api/spaces/mine")])
    for secret in (keys["epochs"]["1"], keys["signing_key"], keys["exchange_key"]):
        assert secret[:20] not in texts
    agent = Client(laptop.client().worker, by="agent")
    for route, body in (
        ("/api/spaces", {"name": "leak", "url": f"file://{folder}"}),
        ("/api/spaces/mine/rotate", {}),
        ("/api/spaces/mine/projects", {"projects": ["x"]}),
    ):
        with pytest.raises(OperationFailed, match="only the user"):
            agent.post(route, body)
    with pytest.raises(OperationFailed, match="only the user"):
        agent.delete("/api/spaces/mine")


def test_without_a_space_nothing_of_it_is_loaded(laptop: Lab, folder: Path) -> None:
    laptop.close()
    loaded = []
    for with_space in (False, True):
        subprocess.run([*MEM, "start"], env=laptop.env(), check=True, capture_output=True)
        if with_space:
            create(laptop, folder)
        loaded.append("cryptography" in Path(f"/proc/{laptop.client().worker.pid}/maps").read_text())
        checks = [json.loads(line)["name"] for line in laptop.mem("doctor", "--json", ok=False).stdout.splitlines()]
        assert ("space" in checks, (laptop.data / "spaces").exists()) == (with_space, with_space)
    assert loaded == [False, True]


# --- kills -----------------------------------------------------------------------------------------------------------

POINTS = ("sync.manifest", "sync.sealed", "sync.uploaded", "sync.downloaded", "sync.stored")
IN_PAGES = "; from claude_mem.sync import exchange; exchange.PAGE = 2"


def exchange_until_killed(lab: Lab, point: str) -> bool:
    """Exchange with a worker that dies at this point; return whether it did. Then start one that lives."""
    lab.close()
    lab.start(CLAUDE_MEM_FAILPOINT=point)
    worker = lab.workers[-1]
    try:
        space = lab.client().get("/api/spaces")[0]["id"]
        lab.client().post(f"/api/spaces/{space}/sync")
        wait_for(lambda: not lab.client().get(f"/api/spaces/{space}")["busy"])
        died = False
    except ClaudeMemError:  # it no longer answers
        died = wait_for(worker.ended)
    lab.close()
    lab.start()
    return died


@pytest.mark.kills
@pytest.mark.parametrize(
    "point", [f"{point}:{nth}" for point in POINTS for nth in (1, 2, 3)] + ["sync.committed:1", "sync.committed:2"]
)
def test_killed_at_any_point_on_either_side_nothing_is_lost_or_doubled(
    laptop: Lab, desktop: Lab, tmp_path: Path, point: str, record_property: Any
) -> None:
    place = tmp_path / "place"
    if "committed" in point:
        subprocess.run(["git", "init", "--quiet", "--bare", str(place)], check=True)
    else:
        place.mkdir()
    laptop.change += IN_PAGES
    desktop.change += IN_PAGES
    phrase = create(laptop, place)
    join(desktop, place, phrase)
    for number in range(5):
        save(laptop, f"Laptop {number}", f"About {SECRET_WORD} {number}.")
        save(desktop, f"Desktop {number}", f"About {SECRET_WORD} {number}.")
    kills = 0
    for lab in (laptop, desktop, laptop, desktop):
        kills += exchange_until_killed(lab, point)
    record_property("kills", kills)
    assert kills or point.startswith("sync.manifest") or not point.endswith(":1")
    for lab in (laptop, desktop, laptop):
        sync(lab)
    expected = sorted(f"{name} {number}" for name in ("Desktop", "Laptop") for number in range(5))
    for lab in (laptop, desktop):
        titles = [item["title"] for item in lab.client().get("/api/observations", limit=100)["items"]]
        assert sorted(titles) == expected
        seen = status(lab)
        assert (seen["problems"], seen["notes"]) == ([], [])
        assert seen["conflicts"] == 0
        assert [machine["here"] for machine in seen["machines"]] == [machine["there"] for machine in seen["machines"]]
