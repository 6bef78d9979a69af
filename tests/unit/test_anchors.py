"""Line anchors: which lines are chosen, what their survival says, and what a look at files finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from claude_mem.digest.line_anchors import collect_lines, find_anchors
from claude_mem.domain import anchors
from claude_mem.domain.anchors import Freshness, Sighting
from claude_mem.domain.records import Draft, ToolUsed, Turn
from claude_mem.inject import freshness
from claude_mem.storage.records import StoredAnchor, apply_looks
from claude_mem.storage.sqlite.memory.anchors import judge_freshness

CODE = "\n".join(f"def step_{number}(basket): return basket.total({number})" for number in range(30)) + "\n"


def turn(*bodies: ToolUsed) -> Turn:
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="", root="/p", started_at=0, ended_at=0, bodies=bodies, seqs=()
    )  # fmt: skip


def write(path: str, content: str) -> ToolUsed:
    return ToolUsed("Write", {"file_path": path, "content": content}, {"type": "create"})


def edit(path: str, old: str, new: str) -> ToolUsed:
    return ToolUsed("Edit", {"file_path": path, "old_string": old, "new_string": new}, {})


def test_at_most_twelve_lines_are_chosen_from_the_whole_edit() -> None:
    lines = anchors.choose_lines(CODE.splitlines())
    assert len(lines) == anchors.MAX_LINES
    assert lines[0] == anchors.hash_line("def step_0(basket): return basket.total(0)")
    later = {anchors.hash_line(line) for line in CODE.splitlines()[20:]}
    assert len(later & set(lines)) >= 3, "the end of the edit counts as well"


def test_the_lines_of_an_edit_are_shared_out_by_the_size_of_its_files() -> None:
    large = [f"def step_{number}(basket): return basket.total({number})" for number in range(170)]
    chosen = anchors.choose_edit_lines({"small.py": large[:30], "large.py": large, "none.py": ["}"]})
    assert [(path, len(lines)) for path, lines in chosen.items()] == [("large.py", 51), ("small.py", 9)]
    few = anchors.choose_edit_lines({"a.py": large[:20], "b.py": large[:3]})
    assert [len(lines) for lines in few.values()] == [20, 3], "a small edit is known in full"


def test_files_outside_of_the_project_have_no_anchor() -> None:
    lines = collect_lines(turn(write("/home/a/.claude/plans/plan.md", CODE), write("/p/a.py", CODE)))
    draft = Draft(key="work", type="feature", title="t", files_modified=("/home/a/.claude/plans/plan.md", "a.py"))
    assert [anchor.path for anchor in find_anchors(draft, lines)] == ["a.py"]


@pytest.mark.parametrize(
    ("counts", "is_committed"),
    [([(12, 12)], True), ([(12, 4)], True), ([(12, 3)], False), ([(2, 2)], True), ([(2, 1)], False),
     ([(30, 0), (6, 3)], True), ([(30, 2), (2, 2)], False), ([], False)],
)  # fmt: skip
def test_a_third_of_the_lines_or_half_of_one_file_shows_that_work_was_committed(
    counts: list[tuple[int, int]], is_committed: bool
) -> None:
    assert anchors.is_committed(counts) == is_committed


@pytest.mark.parametrize("is_expanded", [True, False])
def test_an_edit_that_says_the_same_in_more_words_repeats_it(*, is_expanded: bool) -> None:
    rules = [f"The tax on {name} is paid by the one who sells {name} abroad." for name in ("fish", "bread", "fruit")]
    new = " ".join(rules) if is_expanded else "Every customer pays at the border now, in the money of that country."
    lines = collect_lines(turn(edit("RULES.md", "\n".join(rules), new)))
    phrases = frozenset(anchors.choose_phrases(rules, anchors.MAX_PHRASES)) - {anchors.NO_PHRASE}
    assert lines.repeats(phrases) == is_expanded
    assert not lines.repeats(frozenset()), "of what has no phrases nobody can tell"


def test_lines_that_were_never_committed_say_nothing_later() -> None:
    item = replace(stored("a.py"), lines=tuple(map(anchors.hash_line, CODE.splitlines()[:12])), stamp="1:1")
    committed = replace(item, present=0b11111, committed=0b11111)
    assert judge_freshness([committed]) == Freshness.PARTLY, "most of the work was rewritten before it was committed"
    assert judge_freshness([replace(committed, committed=0b111111)]) == Freshness.CURRENT
    assert judge_freshness([replace(committed, committed=0)]) == Freshness.OUTDATED
    assert judge_freshness([replace(committed, present=0b11)]) == Freshness.OUTDATED


@pytest.mark.parametrize("line", ["}", "return nil", "import os.path as path", "// -----------------", "else:", ""])
def test_lines_that_occur_everywhere_are_not_chosen(line: str) -> None:
    assert anchors.choose_lines([line]) == ()


def test_indentation_does_not_matter() -> None:
    assert anchors.hash_line("    total = sum(basket.lines)  ") == anchors.hash_line("\ttotal = sum(basket.lines)")


@pytest.mark.parametrize(
    ("sightings", "state"),
    [
        ([Sighting(10, 10)], Freshness.CURRENT),
        ([Sighting(10, 8)], Freshness.CURRENT),
        ([Sighting(10, 6)], Freshness.PARTLY),
        ([Sighting(10, 4)], Freshness.OUTDATED),
        ([Sighting(10, 0, exists=False)], Freshness.GONE),
        ([Sighting(10, 10), Sighting(2, 0, exists=False)], Freshness.CURRENT),
        ([Sighting(10, 10, moved_to="b.py")], Freshness.MOVED),
        ([Sighting(2, 0)], Freshness.UNKNOWN),  # two lines that were reformatted are not a rewrite
        ([], Freshness.UNKNOWN),
    ],
)
def test_the_share_of_lines_that_are_still_there_gives_the_freshness(
    sightings: list[Sighting], state: Freshness
) -> None:
    assert anchors.judge(sightings) == state


def test_what_was_only_read_is_never_called_outdated_for_its_surroundings() -> None:
    assert anchors.judge([Sighting(10, 1)], kind=anchors.READ) == Freshness.PARTLY


def test_a_line_that_the_same_turn_removed_again_is_no_anchor() -> None:
    lines = collect_lines(turn(write("/p/a.py", CODE), edit("/p/a.py", CODE, "total = sum(basket.lines)")))
    (anchor,) = find_anchors(Draft(key="work", type="feature", title="t", files_modified=("a.py",)), lines)
    assert anchor.lines == (anchors.hash_line("total = sum(basket.lines)"),)
    assert lines.blob_id("a.py") == "", "the file is no longer what was written"


def test_the_id_of_a_written_file_is_the_one_git_gives_it() -> None:
    assert collect_lines(turn(write("/p/a", "hello\n"))).blob_id("a") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_lines_that_only_moved_to_another_file_do_not_count_as_removed() -> None:
    lines = collect_lines(turn(edit("/p/a.py", CODE, ""), write("/p/b.py", CODE)))
    assert lines.dropped_hashes("a.py") == frozenset()


def test_a_line_that_was_only_reworded_does_not_count_as_removed() -> None:
    old = "total = basket.total(rate, currency)\nprint(total)\nreturn prices.by_group(customer)"
    lines = collect_lines(turn(edit("/p/a.py", old, "total = basket.total(rate, currency, group)\nsend(invoice)")))
    assert lines.dropped_hashes("a.py") == {
        anchors.hash_line("print(total)"), anchors.hash_line("return prices.by_group(customer)"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "is_replaced"),
    [
        ([(12, 8)], True),
        ([(12, 7)], False),
        ([(3, 3)], True),
        ([(2, 2)], False),
        ([(9, 9), (2, 1)], True),
        ([(9, 9), (1, 0)], False),  # what the memory says of the other file still holds
    ],
)
def test_two_thirds_of_its_lines_and_half_in_each_file_must_go_for_a_memory_to_be_replaced(
    counts: list[tuple[int, int]], is_replaced: bool
) -> None:
    assert anchors.is_replaced(counts) == is_replaced


def test_an_edit_that_mostly_removed_lines_holds_while_they_are_absent(tmp_path: Path) -> None:
    lines = collect_lines(turn(edit("/p/a.py", CODE, "total = sum(basket.lines)")))
    (anchor,) = find_anchors(Draft(key="work", type="refactor", title="t", files_modified=("a.py",)), lines)
    assert anchor.kind == anchors.REMOVAL
    removal = StoredAnchor(1, 1, "a.py", anchor.kind, anchor.lines)
    (tmp_path / "a.py").write_text("total = basket.sum_of(lines)\n")
    (item,) = look(tmp_path, removal)
    assert state(item) == Freshness.CURRENT, "the line that took their place may change"
    (tmp_path / "b.py").write_text(CODE)
    (tmp_path / "a.py").unlink()
    (item, _) = look(tmp_path, item, stored("b.py", number=2), paths=("b.py",))
    assert state(item) == Freshness.CURRENT, "the same lines in another file are not the removed ones"
    (tmp_path / "a.py").write_text(CODE)
    (item,) = look(tmp_path, item)
    assert state(item) == Freshness.OUTDATED, "somebody put them back"


@pytest.mark.parametrize(
    ("title", "key", "fails"),
    [
        ("`rtk bun run test` does not work here", "rtk bun run test", True),
        ("Note: `gh pr diff --stat` fails: unknown flag", "gh pr diff --stat", True),
        ("`make dist` works again", "make dist", False),
        ("In this project, `npm test` can't work", "npm test", True),
    ],
)
def test_a_memory_that_a_command_fails_or_works_is_anchored_at_the_command(title: str, key: str, fails: bool) -> None:
    (anchor,) = find_anchors(Draft(key="a", type="discovery", title=title), collect_lines(turn()))
    assert (anchor.path, anchor.kind, bool(anchor.lines)) == (key, anchors.COMMAND, fails)


@pytest.mark.parametrize(
    "title",
    [
        "`make dist` fails when the cache is cold",
        "`make dist` works only on Linux",
        "`make dist` builds the wheel",
        "`make dist && make test` fails",
        "`compute_total()` works",
        "Fixed: `make dist` fails",
    ],
)
def test_what_depends_on_a_condition_or_is_no_claim_is_not_anchored_at_a_command(title: str) -> None:
    assert find_anchors(Draft(key="a", type="discovery", title=title), collect_lines(turn())) == ()


@pytest.mark.parametrize(
    ("was_failing", "worked_at", "failed_at", "expected"),
    [
        (True, 0, 0, Freshness.UNKNOWN),
        (True, 5, 0, Freshness.OUTDATED),
        (True, 5, 6, Freshness.CURRENT),
        (False, 5, 6, Freshness.OUTDATED),
        (False, 5, 0, Freshness.CURRENT),
    ],
)
def test_a_later_call_decides_whether_a_memory_of_a_command_holds(
    was_failing: bool, worked_at: int, failed_at: int, expected: Freshness
) -> None:
    assert anchors.judge_command(was_failing=was_failing, worked_at=worked_at, failed_at=failed_at) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_and_the_encoding_do_not_matter(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.py").write_bytes(CODE.encode(encoding))
    (item,) = look(tmp_path, stored("a.py", CODE[: CODE.index("def step_9(")]))
    assert item.present == item.all_lines


def test_a_failed_edit_leaves_no_anchor() -> None:
    body = ToolUsed("Write", {"file_path": "/p/a.py", "content": CODE}, failed=True)
    assert collect_lines(turn(body)).files == {}


def test_a_discovery_is_anchored_at_the_lines_it_names() -> None:
    text = "\n".join([*(f"value_{n} = compute(other_{n})" for n in range(20)), *CODE.splitlines()[:3]])
    read = ToolUsed("Read", {"file_path": "/p/a.py"}, {"file": {"content": text}})
    said = Draft(key="a", type="discovery", title="`basket.total` rounds twice", files_read=("a.py",))
    (anchor,) = find_anchors(said, collect_lines(turn(read)))
    assert anchor.kind == "read"
    assert set(anchor.lines) == {anchors.hash_line(line) for line in CODE.splitlines()[:3]}
    vague = Draft(key="a", type="discovery", title="Totals are rounded twice", files_read=("a.py",))
    assert find_anchors(vague, collect_lines(turn(read))) == (), "what names nothing cannot be checked"


# --- files -----------------------------------------------------------------------------------------------------------


def stored(path: str, code: str = CODE, number: int = 1) -> StoredAnchor:
    return StoredAnchor(number, number, path, "edit", anchors.choose_lines(code.splitlines()))


def look(root: Path, *items: StoredAnchor, paths: tuple[str, ...] = ()) -> list[StoredAnchor]:
    looks = freshness.look_at_files(str(root), items, seconds=60, paths=paths)
    return apply_looks(items, looks)


def state(item: StoredAnchor) -> Freshness:
    return judge_freshness([item])


def test_a_file_is_compared_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("# a new comment on top of the file\n" + CODE.replace("\n", "\r\n"))
    (item,) = look(tmp_path, stored("a.py"))
    assert state(item) == Freshness.CURRENT
    path.write_text("\n".join(CODE.splitlines()[:10]))
    (item,) = look(tmp_path, item)
    assert state(item) == Freshness.OUTDATED
    path.unlink()
    (item,) = look(tmp_path, item)
    assert state(item) == Freshness.GONE


def edited(path: str, code: str = CODE, number: int = 1) -> StoredAnchor:
    """An anchor of an edit that wrote this code, as it is stored."""
    draft = Draft(key="work", type="feature", title="t", files_modified=(path,))
    (anchor,) = find_anchors(draft, collect_lines(turn(write(f"/p/{path}", code))))
    return StoredAnchor(number, number, path, anchor.kind, anchor.lines, phrases=anchor.phrases)


REWORDED = CODE.replace("(basket)", "(basket, customer)").replace("return ", "return customer.pays or ")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (REWORDED, Freshness.REWORKED),
        (CODE.replace(": return", ":\n    return"), Freshness.REWORKED),  # as a formatter wraps lines
        (CODE.replace("step", "price").replace("basket.total", "cart.sum_up"), Freshness.OUTDATED),
        ("class Basket: total = compute_total(1)\n", Freshness.OUTDATED),
        ("\n".join(CODE.splitlines()[:9]), Freshness.OUTDATED),  # what all of the lines have in common says nothing
    ],
)
def test_lines_that_were_reworded_say_the_same_and_lines_that_were_replaced_do_not(
    tmp_path: Path, code: str, expected: Freshness
) -> None:
    (tmp_path / "a.py").write_text(code)
    (item,) = look(tmp_path, edited("a.py"))
    assert state(item) == expected
    (item,) = look(tmp_path, replace(edited("a.py"), phrases=()))
    assert state(item) == Freshness.OUTDATED, "of an anchor from before there were phrases, only lines are known"


def test_the_phrases_of_lines_that_were_never_committed_say_nothing(tmp_path: Path) -> None:
    lines = CODE.splitlines()
    (tmp_path / "a.py").write_text("\n".join(["total = 0", *REWORDED.splitlines()[10:]]) + "\n")
    item = replace(edited("a.py"), landed=(1 << 10) - 1, committed=(1 << 10) - 1)
    (item,) = look(tmp_path, item)
    assert len(item.lines) == len(lines)
    assert state(item) == Freshness.OUTDATED, "the lines that landed are gone, and what they say as well"
    assert state(replace(item, landed=0, committed=0)) == Freshness.REWORKED


@pytest.mark.parametrize("count", [1, 3, 7, 29, 30, 31, 60])
def test_each_phrase_of_an_anchor_is_of_a_known_line(count: int) -> None:
    lines = [f"value_{number} = compute_{number}(other_{number}, more_{number})" for number in range(count)]
    phrases = anchors.choose_phrases(lines, anchors.MAX_PHRASES)
    assert 0 < len(phrases) <= anchors.MAX_PHRASES
    for phrase, line in zip(phrases, anchors.phrase_lines(count, len(phrases)), strict=True):
        assert phrase in anchors.hash_phrases(lines[line].encode())
    assert anchors.unpack_phrases(anchors.pack_phrases(phrases)) == phrases
    assert anchors.select_phrases(phrases, count, (1 << count) - 1).bit_count() == len(phrases)
    assert anchors.select_phrases(phrases, count, 0) == 0


def test_a_line_without_a_phrase_takes_no_place_of_another() -> None:
    phrases = anchors.choose_phrases(["one_word_only_here", "two words"], 30)
    assert phrases == (anchors.NO_PHRASE, *anchors.choose_phrases(["two words"], 30))
    assert anchors.select_phrases(phrases, 2, 0b11) == 0b10
    assert anchors.choose_phrases([], 30) == anchors.choose_phrases(["one_word_only_here"], 30) == ()


def test_nothing_is_claimed_of_a_changed_file_that_there_was_no_time_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("total = 0\n")
    (tmp_path / "b.py").write_text("total = 0\n")
    first, second = look(tmp_path, stored("a.py"), stored("b.py", number=2))
    assert (state(first), state(second)) == (Freshness.OUTDATED, Freshness.OUTDATED)
    (tmp_path / "a.py").write_text(CODE)
    clock = iter([0, 0, 0, 99])  # the start, the time of each file, and when the changed one would be read
    monkeypatch.setattr(freshness, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    first, second = look(tmp_path, first, second)
    assert (state(first), state(second)) == (Freshness.UNKNOWN, Freshness.OUTDATED)


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(CODE)
    (item,) = look(tmp_path, stored("a.py"))
    monkeypatch.setattr(freshness._Tree, "read_hashes", lambda *_: pytest.fail("read again"))
    assert freshness.look_at_files(str(tmp_path), [item], seconds=60) == []


def test_a_renamed_file_and_a_renamed_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.py").write_text(CODE)
    (tmp_path / "new" / "c.py").write_text(CODE.replace("step", "stage"))
    paths = ("new/a.py", "new/c.py")
    (moved,) = look(tmp_path, stored("old/a.py"), stored("new/c.py", CODE.replace("step", "stage"), 2), paths=paths)[:1]
    assert (state(moved), moved.moved_to) == (Freshness.MOVED, "new/a.py")
    (renamed,) = look(tmp_path, stored("new/b.py"), stored("new/a.py", number=2), paths=paths)[:1]
    assert renamed.moved_to == "new/a.py"
    assert freshness.look_at_files(str(tmp_path), [moved], seconds=60, paths=paths) == [], "known already"


def test_the_nearest_of_many_files_of_the_same_name_is_looked_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "MAX_RENAME_CANDIDATES", 1)
    paths = [f"other/{number}/__init__.py" for number in range(9)] + ["lib/prices/__init__.py"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(CODE if path.startswith("lib") else "total = 0\n")
    (moved, _) = look(tmp_path, stored("src/prices/__init__.py"), stored(paths[0], number=2), paths=tuple(paths))
    assert moved.moved_to == "lib/prices/__init__.py"


def test_nothing_is_claimed_of_a_missing_file_that_there_was_no_time_to_look_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(CODE)
    (tmp_path / "b.py").write_text(CODE)
    first, second = look(tmp_path, stored("a.py"), stored("b.py", number=2))
    (tmp_path / "lib").mkdir()
    (tmp_path / "a.py").rename(tmp_path / "lib" / "a.py")
    clock = iter([0, 0, 0, 0, 99])  # the start, the time of each file, of the missing one, and of what it may be now
    monkeypatch.setattr(freshness, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    looks = freshness.look_at_files(str(tmp_path), [first, second], seconds=60, list_paths=lambda: ["lib/a.py", "b.py"])
    assert [(one.anchor_id, one.stamp) for one in looks] == [(1, None)]


def test_a_folder_without_any_of_the_files_is_not_the_checkout(tmp_path: Path) -> None:
    assert [state(item) for item in look(tmp_path, stored("a.py"), stored("b.py", number=2))] == [Freshness.UNKNOWN] * 2


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "link/a.py", ".git/config", "a\0b", "", "~/a.py"])
def test_nothing_outside_the_work_tree_is_read(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text(CODE)
    (tmp_path / "a.py").write_text(CODE)
    (root / "link").symlink_to(outside)
    (root / "there.py").write_text(CODE)
    (item, _) = look(root, stored(path), stored("there.py", number=2))
    assert item.present == 0


def test_files_that_can_not_be_read_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    (tmp_path / "big.py").write_bytes(b"x" * (freshness.MAX_FILE_BYTES + 1))
    (tmp_path / "binary.py").write_bytes(bytes(range(256)) * 10)
    folder, large, binary = look(tmp_path, stored("a.py"), stored("big.py", number=2), stored("binary.py", number=3))
    assert state(folder) == Freshness.GONE, "a folder stands where the file was"
    assert state(large) == Freshness.UNKNOWN
    assert state(binary) == Freshness.OUTDATED
