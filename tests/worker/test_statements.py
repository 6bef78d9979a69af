"""What agents' instruction files say of the repository: what no longer holds is reported, and nothing else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from claude_mem.curate import instruction_files
from claude_mem.curate.instruction_files import Finding, Report
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.statements import Mention, find_mentions
from tests.support.lab import Lab
from tests.support.repositories import Repository, functions
from tests.support.terminal import Terminal

TEXT = """# The shop

Prices are in `src/prices.py`, see [taxes](src/taxes.py) and @docs/style.md.
- `stock.py`: nine functions
- `compute_discount()` rounds down; `scripts/deploy.sh` deploys.
- Do not edit `build/out.js`, which is generated.

```sh
$ make lint   # before each commit
npm run check && npm run build
```

Then run `make test`.
The file `src/former.py` was removed.
"""
PACKAGE = '{"scripts": {"check": "tsc --noEmit", "build": "vite build"}}'


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "shop")
    for path in ("src/prices.py", "src/taxes.py", "lib/stock.py", "src/former.py"):
        repository.put(path, functions(Path(path).stem))
    repository.put("src/discount.py", "def compute_discount(basket): return basket.total // 10\n")
    repository.put("docs/style.md", "Write plain English.\n")
    repository.put("scripts/deploy.sh", "echo deployed\n")
    repository.put("Makefile", "lint:\n\truff check\ntest unit:\n\tpytest\n")
    repository.put("package.json", PACKAGE)
    repository.put("AGENTS.md", TEXT)
    repository.commit("Add all of it")
    return repository


def check(repository: Repository, *, agent_folder: Path | None = None) -> Report:
    return instruction_files.check(repository.root, agent_folder=agent_folder)


def names(report: Report) -> list[str]:
    return [problem.name for finding in report.findings for problem in finding.problems]


def test_what_holds_is_not_reported(repository: Repository) -> None:
    report = check(repository)
    assert report.findings == []
    assert report.statements == 10


def test_a_renamed_file_is_reported_with_its_commit_and_the_new_name(repository: Repository) -> None:
    repository.git("mv", "src/prices.py", "src/sums.py")
    commit = repository.commit("Rename the prices")
    (finding,) = check(repository).findings
    (problem,) = finding.problems
    assert (finding.file, finding.line, problem.name, problem.now) == ("AGENTS.md", 3, "src/prices.py", "src/sums.py")
    assert problem.commit is not None
    assert problem.commit.id == commit
    assert finding.replacement == finding.text.replace("src/prices.py", "src/sums.py")


def test_a_file_that_was_rewritten_while_it_was_renamed_keeps_its_successor(repository: Repository) -> None:
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.put("src/sums.py", functions("prices") + "\n# nine more to come\nTOTAL = 9\n")
    repository.commit("Rename the prices")
    repository.git("mv", "src/sums.py", "src/totals.py")
    repository.commit("Rename them again")
    (finding,) = check(repository).findings
    assert finding.problems[0].now == "src/totals.py"


def test_a_renamed_folder_is_followed_for_what_is_named_by_the_end_of_its_path(repository: Repository) -> None:
    repository.put("AGENTS.md", TEXT + "\nSee `lib/` for the rest.\n")
    repository.commit("Say more")
    repository.git("mv", "lib", "shelf")
    repository.commit("Rename the folder")
    (finding,) = check(repository).findings
    assert (finding.problems[0].name, finding.problems[0].now) == ("lib/", "shelf/")
    assert finding.replacement == "See `shelf/` for the rest."


def test_an_entry_about_a_file_that_is_gone_may_go_with_it(repository: Repository) -> None:
    repository.git("rm", "-q", "lib/stock.py")
    repository.commit("Drop the stock")
    (finding,) = check(repository).findings
    assert (finding.problems[0].was, finding.problems[0].now, finding.replacement) == ("lib/stock.py", "", None)


def test_commands_and_symbols_that_are_gone_are_reported(repository: Repository) -> None:
    repository.put("Makefile", "unit:\n\tpytest\n")
    repository.put("package.json", PACKAGE.replace('"check"', '"types"'))
    repository.put("src/discount.py", "def discount_of(basket): return basket.total // 10\n")
    commit = repository.commit("Rename nearly all")
    report = check(repository)
    assert names(report) == ["compute_discount", "lint", "check", "test"]
    problems = {problem.name: problem for finding in report.findings for problem in finding.problems}
    assert {problem.commit.id for problem in problems.values() if problem.commit} == {commit}
    assert problems["check"].now == "types"
    (line,) = [finding.replacement for finding in report.findings if finding.problems[0].name == "check"]
    assert line == "npm run types && npm run build"


def test_what_the_repository_never_had_is_not_reported(repository: Repository) -> None:
    repository.put(
        "AGENTS.md", TEXT + "\nUse `never/was.py`, `make nothing`, `never_there()`; write `logs/today.txt`.\n"
    )
    repository.commit("Say more")
    assert check(repository).findings == []


def test_a_line_that_was_written_later_or_says_so_itself_is_not_reported(repository: Repository) -> None:
    repository.git("rm", "-q", "src/former.py", "src/taxes.py")
    repository.commit("Drop them")
    repository.put(
        "AGENTS.md", "There is no `src/taxes.py` here, do not look for it.\nThe file `src/former.py` was removed.\n"
    )
    repository.commit("Say so")
    assert check(repository).findings == []


def test_work_that_is_in_no_commit_yet_is_not_reported(repository: Repository) -> None:
    (repository.root / "src" / "prices.py").unlink()
    assert check(repository).findings == [], "perhaps it comes back before the commit"
    repository.git("checkout", "-q", "--", "src/prices.py")
    repository.git("rm", "-q", "scripts/deploy.sh")
    repository.commit("Drop the script")
    repository.put("scripts/deploy.sh", "echo\n")
    assert check(repository).findings == [], "it is back"
    repository.put("Makefile", "all:\n")
    repository.commit("Drop the targets")
    repository.put("Makefile", "lint test:\n")
    assert check(repository).findings == []


def test_nested_and_other_agents_files_are_read_but_not_those_of_fixtures(repository: Repository) -> None:
    for path in ("lib/CLAUDE.md", ".github/copilot-instructions.md", ".cursor/rules/code.mdc", "GEMINI.md", "MEMORY.md",
                 "tests/fixtures/one/AGENTS.md", "node_modules/x/AGENTS.md"):  # fmt: skip
        repository.put(path, "The stock is in `stock.py`.\n")
    repository.commit("Add more of them")
    repository.git("rm", "-q", "lib/stock.py")
    repository.commit("Drop the stock")
    assert sorted(finding.file for finding in check(repository).findings) == [
        ".cursor/rules/code.mdc", ".github/copilot-instructions.md", "AGENTS.md", "GEMINI.md", "MEMORY.md", "lib/CLAUDE.md",
    ]  # fmt: skip


def test_the_agents_own_memory_of_a_project_is_as_old_as_its_file(repository: Repository, tmp_path: Path) -> None:
    slug = str(repository.root.resolve()).replace("/", "-").replace("_", "-")
    memory = tmp_path / "agent" / "projects" / slug / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_text("- Taxes are in `src/taxes.py`\n")
    os.utime(memory, (memory.stat().st_atime, memory.stat().st_mtime + 1))
    repository.git("rm", "-q", "src/taxes.py")
    repository.commit("Drop the taxes", in_days=1)
    findings = check(repository, agent_folder=tmp_path / "agent").findings
    assert [finding.file for finding in findings] == ["AGENTS.md", str(memory)]
    os.utime(memory, (memory.stat().st_atime, memory.stat().st_mtime + 2 * 86_400))
    assert len(check(repository, agent_folder=tmp_path / "agent").findings) == 1, "written after the file had gone"


# --- bad input -------------------------------------------------------------------------------------------------------


def test_without_a_repository_a_commit_or_git_nothing_is_reported(tmp_path: Path, repository: Repository) -> None:
    (tmp_path / "AGENTS.md").write_text(TEXT)
    assert instruction_files.check(tmp_path).files == []
    (tmp_path / "new").mkdir()
    Repository.git(repository, "init", "-q", str(tmp_path / "new"))
    assert instruction_files.check(tmp_path / "new").files == []


def test_links_and_large_and_binary_files_are_not_read(repository: Repository, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("`src/prices.py`\n")
    (repository.root / "CLAUDE.md").symlink_to(secret)
    repository.put("GEMINI.md", "x" * (1 << 20))
    (repository.root / "QWEN.md").write_bytes(b"`src/prices.py`\0\xff\xfe\n" * 100)
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.commit("Rename the prices")
    report = check(repository)
    assert {file.name for file in report.files} == {"AGENTS.md", "QWEN.md"}
    assert {finding.file for finding in report.findings} == {"AGENTS.md"}


def test_a_shallow_clone_says_nothing_of_what_it_can_not_see(repository: Repository, tmp_path: Path) -> None:
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.commit("Rename the prices")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.root}", str(clone))
    assert instruction_files.check(clone).findings == []


def test_names_that_look_like_options_or_patterns_are_only_names(repository: Repository) -> None:
    odd = "`--all` `:(exclude)src/x.py` `../../etc/passwd` `src/../../x.py` `*.py` `$(id).py` `a\\b.py` `-rf/x.py`"
    repository.put("AGENTS.md", f"{odd}\n[x](/etc/passwd) [y](file:///etc/passwd) ~~~ `` ` `` \n" + "`a/" * 5000)
    repository.commit("Say odd things")
    assert check(repository).findings == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Run `make lint` or `npm run build:all`.", [("command", "lint"), ("command", "build:all")]),
        ("`src/a.py:12` and `./bin/run`", [("path", "src/a.py"), ("path", "./bin/run")]),
        ("`settings.Load()` `LoadAll()` `load`", [("symbol", "LoadAll")]),
        ("make lint outside of code, src/a.py, LoadAll", []),
        ("`https://example.org/a.py` `a b/c.py` `v1.2`", [("path", "v1.2")]),
    ],
)
def test_what_a_line_names(line: str, found: list[tuple[str, str]]) -> None:
    assert [(mention.kind, mention.name) for mention in find_mentions(line)] == found


def test_code_blocks_of_programs_name_no_commands() -> None:
    text = "```python\nmake lint\n```\n~~~\nmake lint\n```\nmake test\n~~~\n"
    assert find_mentions(text) == [Mention(5, "command", "lint", "make"), Mention(7, "command", "test", "make")]


# --- changing a file -------------------------------------------------------------------------------------------------


def renamed(repository: Repository) -> tuple[instruction_files.InstructionFile, list[Finding]]:
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.git("rm", "-q", "lib/stock.py")
    repository.commit("Rename the prices, drop the stock")
    report = check(repository)
    return report.files[0], report.findings


def test_accepted_changes_are_written_and_nothing_else(repository: Repository) -> None:
    path = repository.root / "AGENTS.md"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    repository.commit("Use CRLF")
    file, findings = renamed(repository)
    instruction_files.apply(file, findings)
    expected = TEXT.replace("src/prices.py", "src/sums.py").replace("- `stock.py`: nine functions\n", "")
    assert path.read_bytes() == expected.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [other.name for other in repository.root.iterdir() if other.name.startswith(".claude-mem")] == []


def test_a_file_that_was_changed_meanwhile_is_left_alone(repository: Repository) -> None:
    file, findings = renamed(repository)
    path = repository.root / "AGENTS.md"
    path.write_text("Written by someone else\n")
    with pytest.raises(OperationFailed, match="changed meanwhile"):
        instruction_files.apply(file, findings)
    assert path.read_text() == "Written by someone else\n"
    path.unlink()
    path.symlink_to(repository.root / "README")
    with pytest.raises(OSError, match="symbolic link"):
        instruction_files.apply(file, findings)
    assert [other.name for other in repository.root.iterdir() if other.name.startswith(".claude-mem")] == []


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(lab: Lab) -> Lab:
    repository = Repository(lab.project)
    repository.put("src/prices.py", functions("prices"))
    repository.put("src/taxes.py", functions("taxes"))
    repository.put("AGENTS.md", "Prices are in `src/prices.py`.\nTaxes are in `src/taxes.py`.\n")
    repository.commit("Begin")
    for name in ("prices", "taxes"):
        repository.git("mv", f"src/{name}.py", f"src/{name}_now.py")
    repository.commit("Rename both")
    lab.start()
    return lab


def test_review_lists_them_in_a_pipe_and_as_json(shop: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.project)
    text = shop.mem("review").stdout
    assert "AGENTS.md:1 names `src/prices.py`, gone since" in text
    assert "   new: Taxes are in `src/taxes_now.py`." in text
    rows = [json.loads(line) for line in shop.mem("review", "--json").stdout.splitlines()]
    assert [(row["kind"], row["id"], row["problems"][0]["now"]) for row in rows] == [
        ("statement", "AGENTS.md:1", "src/prices_now.py"),
        ("statement", "AGENTS.md:2", "src/taxes_now.py"),
    ]
    assert (shop.project / "AGENTS.md").read_text().count("_now") == 0, "nothing is written without being asked"


def test_review_asks_before_it_writes_with_no_as_the_default(shop: Lab) -> None:
    terminal = Terminal(shop, "review")
    terminal.answer("[y/N]", "\n")
    terminal.answer("[y/N]", "y\n")
    assert "changed 1 line of AGENTS.md" in terminal.finish()
    text = (shop.project / "AGENTS.md").read_text()
    assert text == "Prices are in `src/prices.py`.\nTaxes are in `src/taxes_now.py`.\n"


def test_an_agent_is_never_asked(shop: Lab) -> None:
    terminal = Terminal(shop, "review", CLAUDECODE="1")
    assert "[y/N]" not in terminal.finish()
    assert (shop.project / "AGENTS.md").read_text().count("_now") == 0


def test_nothing_that_a_repository_names_is_run(repository: Repository, tmp_path: Path) -> None:
    trap, mark = tmp_path / "trap.sh", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\necho ran >> {mark}\ncat\n")
    trap.chmod(0o755)
    repository.put(".gitattributes", "* filter=trap diff=trap\n")
    repository.commit("Set a trap")
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.commit("Rename the prices")
    for name in ("core.fsmonitor", "filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "diff.trap.command",
                 "diff.trap.textconv", "core.pager", "core.editor", "core.sshCommand", "pager.rev-list"):  # fmt: skip
        repository.git("config", name, str(trap))
    repository.git("config", "diff.external", str(trap))
    mark.unlink(missing_ok=True)  # git itself ran some of them while the trap was set up
    assert [problem.now for finding in check(repository).findings for problem in finding.problems] == ["src/sums.py"]
    assert not mark.exists()
