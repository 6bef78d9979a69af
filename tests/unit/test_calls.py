"""How the calls of commands are read: their keys, the mistakes that outputs report, and what worked instead."""

from __future__ import annotations

import time

import pytest

from claude_mem.digest import calls
from claude_mem.digest.evidence import Command
from claude_mem.domain import mistakes
from claude_mem.domain.mistakes import CallRecord, KnownMistake, PastCall, find_mistake
from claude_mem.domain.records import Body, Prompted, ToolUsed, Turn
from claude_mem.domain.rules import forbids_call

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the"
    " new_string was NOT written to the file). To tell you how to proceed, the user said:\nnot on a Friday"
)


def command(text: str, output: str, *, failed: bool = True) -> Command:
    return Command(text, output, failed, 1)


def turn(*steps: tuple[str, str, bool], origins: tuple[str, ...] = ()) -> Turn:
    bodies: list[Body] = [Prompted("please")]
    bodies += [ToolUsed("Bash", {"command": text}, output, failed) for text, output, failed in steps]
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="please", root="/r", started_at=0, ended_at=0,
        bodies=bodies, seqs=range(1, len(bodies) + 1), origins=("user", *origins) if origins else (),
    )  # fmt: skip


def records(*steps: tuple[str, str, bool]) -> dict[str, CallRecord]:
    return {record.key: record for record in calls.record_calls(turn(*steps))}


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "output", "kind", "key"),
    [
        ("wrap bun run test", "error: unrecognized subcommand 'bun'\n\nUsage: wrap <COMMAND>", "word", "wrap bun"),
        ("cd web && npm run tests", "npm error Missing script: \"tests\"", "word", "npm run tests"),
        ("CI=1 bun run e2e 2>&1", 'error: Script not found "e2e"', "word", "bun run e2e"),
        ("git swich main", "git: 'swich' is not a git command. See 'git --help'.", "word", "git swich"),
        ("make chek", "make: *** No rule to make target 'chek'.  Stop.", "word", "make chek"),
        ("docker compse up", "docker: 'compse' is not a docker command.", "word", "docker compse"),
        ("python3 -m pytst -q", "/usr/bin/python3: No module named pytst", "word", "python -m pytst"),
        ("gtimeout 5 make", "bash: line 1: gtimeout: command not found", "program", "gtimeout"),
        ("fd -e py", "zsh:1: command not found: fd", "program", "fd"),
        ("fd -e py", "sh: 1: fd: not found", "program", "fd"),
        ("gh pr diff 88 --stat", "unknown flag: --stat\n\nUsage:  gh pr diff", "option", "gh pr diff --stat"),
        ("sed -n 1p a | cat -A", "cat: illegal option -- A\nusage: cat [-belnstuv] [file ...]", "option", "cat -A"),
        ("ls --colour", "ls: unrecognized option '--colour'", "option", "ls --colour"),
        ("go test -runn X ./...", "flag provided but not defined: -runn", "option", "go test -runn"),
        ("cargo build --fast", "error: unexpected argument '--fast' found", "option", "cargo build --fast"),
        ("cat src/gone.py", "cat: src/gone.py: No such file or directory", "path", "cat src/gone.py"),
        ("cd web/app && ls", "(eval):cd:1: no such file or directory: web/app", "path", "cd web/app"),
        ("gcx --all", "gcx : The term 'gcx' is not recognized as the name of a cmdlet", "program", "gcx"),
        ("gcx --all", "'gcx' is not recognized as an internal or external command,", "program", "gcx"),
        ("node ./x/y.js", "Error: ENOENT: no such file or directory, open './x/y.js'", "path", "node ./x/y.js"),
    ],
)  # fmt: skip
def test_a_mistake_is_known_by_the_word_that_the_output_names(text: str, output: str, kind: str, key: str) -> None:
    mistake = calls.find_mistake(command(text, output))
    assert mistake is not None
    assert (mistake.kind, mistake.key) == (kind, key)
    assert key in calls.command_keys(text), "so that the next command of the kind is recognized"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("pytest -q", "E  AssertionError: unknown flag: --stat\n1 failed"),
        ("npm run lint", "src/a.ts:3:1 error 'foo' is not defined  no-undef"),
        ("go test ./...", '--- FAIL: TestRun\n    run_test.go:7: got "command not found: fd"'),
        ("go build ./...", "main.go:3: undefined: strings.Foo"),
        ("git push", "error: failed to push some refs to 'origin'"),
        ("cat log", "tool: unknown option --bad"),
        ("pytest -q web", "web/test_a.py::test_flaky FAILED\n1 failed, 3 passed"),
        ("cat > a.sh <<'EOF'\nwrap bun run test\nEOF", "error: unrecognized subcommand 'bun'"),
    ],
)
def test_ordinary_failures_are_no_mistakes(text: str, output: str) -> None:
    assert calls.find_mistake(command(text, output)) is None


def test_a_pipe_hides_the_status_of_a_mistake_but_not_its_message() -> None:
    output = "Error: unknown flag: --out"
    assert calls.find_mistake(command("lint run --out=x | head", output, failed=False))
    assert calls.find_mistake(command("lint run --out=x", output, failed=False)) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "|", "&& ||", "'", "cat <<EOF\nrm -rf $(x\nEOF", "C:\\tools\\x.exe --bad C:\\a b", "for i in 1 2; do x $i; done",
        "a" * 100_000, "x " * 50_000, "$(" * 3_000, "echo \ud800", "x\0y --z", "-" * 9_000, "a|" * 20_000,
    ],
)  # fmt: skip
def test_any_command_is_read_at_once_and_without_an_error(text: str) -> None:
    begin = time.perf_counter()
    assert len(calls.command_keys(text)) <= calls.MAX_KEYS
    calls.find_mistake(command(text, f"x: unknown option --bad\n{text}: command not found\n" * 20))
    assert time.perf_counter() - begin < 1


def test_the_text_of_a_here_document_is_no_call() -> None:
    assert not any("wrap" in key for key in calls.command_keys("cat > a.sh <<'EOF'\nwrap bun run test\nEOF"))


# --- what worked -----------------------------------------------------------------------------------------------------


def test_what_worked_next_for_the_same_purpose_is_remembered() -> None:
    found = records(
        ("wrap bun run test", "error: unrecognized subcommand 'bun'", True),
        ("git status", "clean", False),
        ("bun run test 2>&1 | tail -5", "12 pass", False),
    )
    assert (found["wrap bun"].instead, found["wrap bun"].counts_as) == ("bun run test", "bun run test")


@pytest.mark.parametrize(
    ("failed", "output", "then", "instead"),
    [
        ("gh pr diff 8 --stat", "unknown flag: --stat", "gh pr diff 8 --name-only", "gh pr diff 8 --name-only"),
        ("npm run tests", "npm error Missing script: \"tests\"", "npm run test", "npm run test"),
        ("python tools/gen.py", "bash: python: command not found", "python3 tools/gen.py", "python3 tools/gen.py"),
        ("gh pr diff 8 --stat", "unknown flag: --stat", "git log", ""),
        ("npm run tests", "npm error Missing script: \"tests\"", "npm install", ""),
        ("git swich main", "git: 'swich' is not a git command.", "git status", ""),
        ("fd -e py", "zsh:1: command not found: fd", "ls", ""),
    ],
)  # fmt: skip
def test_only_a_call_of_the_same_purpose_counts_as_what_worked(
    failed: str, output: str, then: str, instead: str
) -> None:
    found = records((failed, output, True), (then, "fine", False))
    assert next(record for record in found.values() if record.failed).instead == instead


def test_calls_whose_status_is_hidden_do_not_count_as_working() -> None:
    found = records(("gh pr diff --stat 2>/dev/null | head; ls -la", "", False), ("a --x || b --y", "", False))
    assert "gh pr diff --stat" not in found
    assert "a --x" not in found
    assert found["b --y"].worked == 1


def test_of_an_external_output_only_the_status_and_the_own_words_count() -> None:
    hidden = ("gh pr view 8 | cat", "gh: unknown flag: view", False)
    wrong = ("gh pr diff 8 --stat", "unknown flag: --stat", True)
    right = ("gh pr diff 8 --name-only", "a.py", False)
    found = {one.key: one for one in calls.record_calls(turn(hidden, wrong, right, origins=("external",) * 3))}
    mistake = found["gh pr diff --stat"]
    assert (mistake.failed, mistake.reason, mistake.instead) == (1, "", "")
    assert not any(record.failed for key, record in found.items() if key != mistake.key)
    assert found["gh pr diff --name-only"].worked == 1, "so that a warning is forgotten when the call works"


def test_the_remedy_that_was_found_most_often_is_told() -> None:
    def solved(at: int, instead: str) -> PastCall:
        return PastCall(at, at, CallRecord(key="wrap x", failed=1, kind="word", instead=instead, counts_as=instead))

    mistake = find_mistake([solved(1, "x test"), solved(2, "x test"), solved(3, "other")], now=9)
    assert mistake is not None
    assert mistake.instead == "x test"


def test_what_worked_is_counted_by_all_words_that_name_it() -> None:
    found = records(
        ("wrap bun test", "error: unrecognized subcommand 'bun'", True), ("wrap test bun run a", "ok", False)
    )
    assert found["wrap bun"].counts_as == "wrap test bun run"


def test_a_refusal_is_recorded_with_the_words_of_the_user_and_is_no_failure() -> None:
    found = records(("git push --force origin", REJECTED, True))
    assert (found["git push"].refused, found["git push"].words) == (1, "not on a Friday")
    assert not found["git push"].failed


# --- learning and forgetting -----------------------------------------------------------------------------------------

KEY = "gh pr diff --stat"


def past(at: int, *, session: int = 0, worked: int = 0, failed: int = 0) -> PastCall:
    record = CallRecord(key=KEY, worked=worked, failed=failed, kind=mistakes.OPTION, instead="gh pr diff")
    return PastCall(at, session or at, record)


def known(*history: PastCall, now: int = 10) -> KnownMistake | None:
    return find_mistake(history, now=now)


def test_one_failure_is_enough_if_the_call_never_worked() -> None:
    assert known(past(1, failed=1)) == KnownMistake(KEY, mistakes.OPTION, 1, 1, "gh pr diff", "")


def test_a_mistake_is_forgotten_when_the_call_begins_to_work() -> None:
    assert known(past(1, failed=2), past(2, failed=1), past(3, worked=1)) is None


def test_a_call_that_fails_for_another_reason_is_no_repeat() -> None:
    found = records(("gh pr diff --stat", "HTTP 502: bad gateway", True), ("go test ./...", "--- FAIL: TestA", True))
    assert not any(record.failed for record in found.values())


def test_a_call_that_failed_and_passed_is_never_spoken_of_again() -> None:
    assert known(past(1, failed=1, worked=1)) is None
    assert known(past(1, failed=1), past(2, worked=1), past(3, failed=1), past(4, failed=1)) is None


def test_a_call_that_worked_before_must_fail_in_two_sessions() -> None:
    assert known(past(1, worked=9), past(2, failed=3)) is None
    assert known(past(1, worked=9), past(2, failed=1, session=7), past(3, failed=1, session=7)) is None
    assert known(past(1, worked=9), past(2, failed=1), past(3, failed=1))


def test_an_old_mistake_is_let_go() -> None:
    assert known(past(1, failed=1), now=mistakes.MAX_AGE_MS + 2) is None
    assert known(past(1, failed=1), now=0), "a clock that was set back changes nothing"


def test_what_was_never_refused_needs_no_hint() -> None:
    assert mistakes.count_permissions([past(1, worked=1)]) is None


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "called", "forbidden"),
    [
        ("Never run `npm`, we use pnpm", "npm install", True),
        ("Use bun, not npm", "npm test", True),
        ("Use bun, not npm", "bun test", False),
        ("Never push to main", "git push origin main", True),
        ("Never push to main", "git push origin topic", False),
        ("Don't push without asking me", "git push", True),
        ("Never use `git push --force`", "git push --force origin x", True),
        ("Never use `git push --force`", "git push", False),
        ("Use `npm run test:ci` instead of `npm run test`", "npm run test:ci", False),
        ("Use `npm run test:ci` instead of `npm run test`", "npm run test", True),
        ("Use bun run test rather than bun test", "bun run test", False),
        ("Do not use lodash", "npm install lodash", False),
        ("Please stop adding comments", "git add x", False),
        ("Always run make fmt before committing", "git commit -m x", False),
        ("I prefer rg over grep", "grep -rn x", True),
    ],
)
def test_a_rule_forbids_a_call_by_the_words_it_begins_with(rule: str, called: str, forbidden: bool) -> None:
    assert forbids_call(rule, called.split()) is forbidden


def test_a_token_after_an_option_is_part_of_no_key() -> None:
    token = "BHZh6DdT9Wj6hhs9z52t"
    assert [key for key in calls.command_keys(f"deploy --token {token}") if token in key] == []
