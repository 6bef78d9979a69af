"""What is in a file of secrets is not kept, whichever agent read or wrote it; that it was touched is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents import payload
from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain.records import Event, ToolUsed
from claude_mem.privacy import files
from claude_mem.system.spool import Envelope
from tests.support.lab import Lab

HIDDEN = "correct horse"  # nothing of it looks like a secret: only the place says so

WITHHELD = (
    ".env", "/home/jane/shop/.env", ".env.local", ".env.production", "config/prod.env", ".envrc", "~/.ssh/id_rsa", "id_ed25519",
    "deploy/id_ecdsa_old", ".ssh/config", "server.pem", "tls/server.key", "cert.pfx", "credentials.json", "~/.aws/credentials",
    ".aws/config", ".netrc", ".npmrc", ".pypirc", "kubeconfig", "~/.kube/config", "prod.kubeconfig", ".git-credentials", ".pgpass",
    "service-account-prod.json", "config/secrets.yml", "terraform.tfvars", "C:\\Users\\jane\\.env", ".ENV", ".docker/config.json",
    ".env-prod", ".env_prod", "prod.env.bak", "secrets/prod.yaml", "/run/secrets/db_password", "app-secrets.yml",
    "~/.gemini/oauth_creds.json", "file:///w/.env", ".zsh_history", "$CLAUDE_MEM_DATA_DIR/token",
)  # fmt: skip
OPEN = (
    ".env.example", ".env.sample", "env.py", "src/environment.ts", "id_rsa.pub", ".ssh/known_hosts", "src/credentials.py",
    "secrets.go", "keys.py", "README.md", "monkey", "package.json", "config.json", ".kube/cache/x", "docs/secrets.md", "",
    "process.env", "process.env.PROD", "import.meta.env.PROD_URL", "src/secrets/store.py", ".env-example", "secrets", "environment",
)  # fmt: skip


@pytest.mark.parametrize("path", WITHHELD)
def test_a_file_of_secrets_is_known_by_its_name(path: str) -> None:
    assert files.is_withheld(path, files.WITHHELD_FILES)


@pytest.mark.parametrize("path", OPEN)
def test_any_other_file_is_not(path: str) -> None:
    assert not files.is_withheld(path, files.WITHHELD_FILES)


def test_a_person_may_name_more_files_and_take_some_out() -> None:
    rules = (*files.WITHHELD_FILES, "vault/*", "!*.pem")
    assert files.is_withheld("/srv/vault/readme.md", rules)
    assert not files.is_withheld("server.pem", rules)
    assert files.is_withheld(".env", rules)


# Each agent's own words for it, as its hook tells them.
TOLD: dict[str, dict[str, Any]] = {
    "claude read": {"tool_name": "Read", "tool_input": {"file_path": "/w/.env"}, "tool_response": HIDDEN},
    "claude write": {"tool_name": "Write", "tool_input": {"file_path": "/w/.env", "content": HIDDEN}, "tool_response": {}},
    "claude edit": {
        "tool_name": "Edit",
        "tool_input": {"file_path": "/w/.env", "old_string": HIDDEN, "new_string": HIDDEN},
        "tool_response": {"filePath": "/w/.env", "structuredPatch": [{"lines": [f"+{HIDDEN}"]}]},
    },
    "claude edits": {
        "tool_name": "MultiEdit",
        "tool_input": {"file_path": "/w/.env", "edits": [{"old_string": HIDDEN, "new_string": "b"}]},
        "tool_response": "done",
    },
    "claude grep": {"tool_name": "Grep", "tool_input": {"pattern": "KEY", "path": "/w/.env"}, "tool_response": HIDDEN},
    "claude shell": {"tool_name": "Bash", "tool_input": {"command": "cat .env"}, "tool_response": {"stdout": HIDDEN}},
    "server": {"tool_name": "mcp__fs__read_text", "tool_input": {"paths": ["/a", "/w/.env"]}, "tool_response": [{"text": HIDDEN}]},
    **{
        f"field {name}": {"tool_name": "mcp__x__read", "tool_input": given, "tool_response": [{"type": "text", "text": HIDDEN}]}
        for name, given in {
            "relative_path": {"relative_path": ".env"},
            "filepath": {"filepath": "/w/.env"},
            "file_name": {"file_name": ".env"},
            "pathInProject": {"pathInProject": ".env"},
            "any": {"whatever": "/w/.env", "count": 3},
            "cmd": {"cmd": "cat .env"},
            "args": {"program": "cat", "args": ["-n", "/w/.env"]},
            "beside a path": {"command": "cat .env", "path": "/w"},
            "nested": {"arguments": {"path": ".env", "content": HIDDEN}},
            "of files": {"files": [{"file_path": ".env", "content": HIDDEN}]},
        }.items()
    },
    "codex shell": {"host": "codex", "tool_name": "Bash", "tool_input": {"command": "head -3 .env"}, "tool_response": HIDDEN},
    "codex patch": {
        "host": "codex",
        "tool_name": "apply_patch",
        "tool_input": {"command": f"*** Begin Patch\n*** Update File: .env\n@@\n-a\n+{HIDDEN}\n*** End Patch"},
        "tool_response": "Success. Updated the following files:\nM .env",
    },
    "gemini read": {
        "host": "gemini",
        "tool_name": "read_file",
        "tool_input": {"absolute_path": "/w/.env"},
        "tool_response": {"llmContent": HIDDEN},
    },
    "gemini write": {
        "host": "gemini",
        "tool_name": "write_file",
        "tool_input": {"file_path": ".env", "content": HIDDEN},
        "tool_response": {"llmContent": "ok", "returnDisplay": {"fileDiff": f"--- a\n+++ b\n@@ -1 +1 @@\n+{HIDDEN}"}},
    },
    "qwen read": {"host": "qwen", "tool_name": "read_file", "tool_input": {"absolute_path": "/w/.env"}, "tool_response": HIDDEN},
    "copilot view": {"host": "copilot", "tool_name": "view", "tool_input": {"path": "/w/.env"}, "tool_result": {"text_result_for_llm": HIDDEN}},
    "opencode write": {
        "host": "opencode",
        "tool_name": "write",
        "tool_input": {"filePath": "/w/.env", "content": HIDDEN},
        "tool_response": "ok",
    },
    "cursor edit": {
        "host": "cursor",
        "hook_event_name": "afterFileEdit",
        "conversation_id": "s1",
        "file_path": "/w/.env",
        "edits": [{"old_string": "a", "new_string": HIDDEN}],
    },
    "windsurf write": {
        "host": "windsurf",
        "agent_action_name": "post_write_code",
        "trajectory_id": "s1",
        "tool_info": {"file_path": "/w/.env", "edits": [{"old_string": "a", "new_string": HIDDEN}]},
    },
}  # fmt: skip


def stored(told: dict[str, Any], **settings: Any) -> ToolUsed:
    fields = {"session_id": "s1", "cwd": "/w", "hook_event_name": "PostToolUse", **told}
    host = fields.pop("host", "claude")
    event = payload.read_event(Envelope("e1", {"command": "save", "host": host}, json.dumps(fields).encode()))
    body = sanitize.clean_event(event, Config(**settings)).body
    assert isinstance(body, ToolUsed)
    return body


@pytest.mark.parametrize("how", TOLD)
def test_what_is_in_it_is_withheld_whichever_agent_touches_it(how: str) -> None:
    body = stored(TOLD[how])
    assert HIDDEN not in repr(body)
    assert ".env" in repr(body.input)  # that it was touched is known
    assert files.WITHHELD_NOTE in repr(body)


@pytest.mark.parametrize(
    "command",
    [
        "cat .env", "cat /w/.env | sort", "head -n 2 ~/.aws/credentials", "grep KEY .env.local", "sed -n 1,5p config/secrets.yml",
        "while read line; do echo $line; done < .env", "base64 < id_rsa", "git show HEAD:.env", "git -C /w diff -- .env",
        "cd /w && cat ./.env", "sudo cat '/w/.env'", "less .npmrc", "awk -F= '{print $2}' .env", "/bin/cat .env*", "xargs -a .env",
        "python3 -c \"print(open('.env').read())\"", "node -e \"console.log(require('fs').readFileSync('.env','utf8'))\"",
        "perl -pe 1 .env", "sops -d secrets.enc.yaml", "ansible-vault view secrets.yml", "terraform show terraform.tfstate",
        "vim -es '+%print' '+q' .env", "curl -s file:///w/.env", "source .env && set", ". ./.env; env", "source .env; echo $NOTE",
        "docker compose exec web cat /app/.env", "docker compose --env-file .env config", "ssh host 'cat .env'", "cat .e''nv",
        "cat .en?", "cat ~/{.npmrc,.pypirc}", "cd ~/.aws && cat config", "grep -r '' ~/.aws", "find . -name .env -exec cat {} +",
        "find . -name .env | xargs cat", "A=.env; cat $A", "for f in .env .npmrc; do cat $f; done", "echo \"$(cat .env)\"",
        "echo $(<.env)", "bash <<'EOF'\ncat .env\nEOF", "python3 - <<'EOF'\nprint(open('.env').read())\nEOF", "gh api repos/a/b/contents/.env",
        "cat ${CLAUDE_MEM_DATA_DIR}/token", "git diff --no-index /dev/null .env", "npx cat .env", "some-new-tool .env",
        "echo `cat .env`", "ls .env # don't\ncat .env", "echo $'it\\'s'; cat .env", "find . -name .env | xargs -r cat", "sudo -u me cat .env",
        "cat > a <<EOF\n$(cat .env)\nEOF", "cat <<< a\ncat .env", "echo \"$(grep \"^A=\" .env)\"",
    ],
)  # fmt: skip
def test_a_command_that_prints_it_keeps_its_output_to_itself(command: str) -> None:
    body = stored({"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": {"stdout": HIDDEN}})
    assert (body.input["command"], body.output) == (command, files.WITHHELD_NOTE)


@pytest.mark.parametrize(
    "command",
    [
        f"echo '{HIDDEN}' >> .env",
        f"cat > /w/.env <<'EOF'\n{HIDDEN}\nEOF",
        f"printf '{HIDDEN}' | tee -a .npmrc",
        f"echo '{HIDDEN}' | sudo tee --append .env",
        f"echo '{HIDDEN}' >| .env",
        f"echo '{HIDDEN}' | dd of=.env",
        f"sed -i 's/x/{HIDDEN}/' .env",
        f"sed --in-place=.bak 's/x/{HIDDEN}/' .env",
        f"perl -pi -e 's/x/{HIDDEN}/' .env",
        f"python3 - <<'EOF'\nopen('.env','w').write('{HIDDEN}')\nEOF",
        f"python3 -c \"open('.env', 'a').write('{HIDDEN}')\"",
        f"node -e \"require('fs').writeFileSync('.env', '{HIDDEN}')\"",
        f"install -m600 /dev/stdin .env <<'EOF'\n{HIDDEN}\nEOF",
        f"python3 -c \"open('.env', 'a').write('{HIDDEN}",  # cut short
        f"cat <<EOF | ssh host 'cat > .env'\n{HIDDEN}\nEOF",
    ],
)
def test_a_command_that_writes_it_is_not_kept(command: str) -> None:
    body = stored(
        {"tool_name": "Bash", "tool_input": {"command": command, "description": HIDDEN}, "tool_response": HIDDEN}
    )
    assert HIDDEN not in repr(body)
    assert ".env" in body.input["command"] or ".npmrc" in body.input["command"]


@pytest.mark.parametrize(
    "command",
    [
        "rm .env", "ls -la .env .ssh/id_rsa", "cp .env.example .env", "git add .env.example && git diff", "cat .env.example",
        "docker compose --env-file .env up", "ssh -i ~/.ssh/id_rsa host uptime", "grep -rn --exclude=.env TODO src", "pytest -q",
        "git status", "git check-ignore .env", "git rm --cached .env", "git log --oneline -- .env", "wc -l .env", "ls ~/.ssh",
        "source .env && pytest -q", "set -a; source .env; set +a; npm test", "if [ -f .env ]; then . ./.env; fi; make",
        "test -f .env || cp .env.example .env", "[ -f .env ] && echo yes", "echo '.env' >> .gitignore", "chmod 600 ~/.ssh/id_rsa",
        "git commit -m 'Load .env; read it late'", "gh pr create --title x --body 'Reads .env; only once'",
        "git commit -m \"$(cat <<'EOF'\nAdd .env to .gitignore; it's \"so\"\n\nEOF\n)\"", "kubectl get secrets",
        "cat > README.md <<'EOF'\nCopy `.env.example` to `.env`, then run.\nEOF", "grep -rn '\\.env' src", "rg process.env src",
        "find . -name '.env*' -not -path './node_modules/*'", "find . -name .env | xargs ls -la", "npx dotenv -e .env -- npm test",
        "KUBECONFIG=~/.kube/config kubectl get pods", "kubectl --kubeconfig ~/.kube/config get pods", "node --env-file=.env app.js",
        "terraform plan -var-file prod.tfvars", "curl --cert client.pem --key client.key https://example.com", "cat docs/secrets.md",
        "sudo -u me ls .env", "timeout -k 5 10s ls .env", "sed -i s/a/b/ src/app.py", "python -m pytest tests/security/test_secrets.py", "cat package.json",
    ],
)  # fmt: skip
def test_any_other_command_keeps_what_it_printed(command: str) -> None:
    body = stored({"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": "3 passed"})
    assert (body.input["command"], body.output) == (command, "3 passed")


DIFF = f"""diff --git a/.env b/.env
index 1..2 100644
--- a/.env
+++ b/.env
@@ -1 +1,2 @@
 NOTE=a
+NOTE={HIDDEN}

diff --git a/shop.py b/shop.py
--- a/shop.py
+++ b/shop.py
+total = 1"""


@pytest.mark.parametrize(
    ("output", "left"),
    [
        (DIFF, ["diff --git a/.env b/.env", files.WITHHELD_NOTE, "diff --git a/shop.py b/shop.py", "+total = 1"]),
        (
            f"\x1b[1mdiff --git a/.env b/.env\x1b[m\n\x1b[32m+{HIDDEN}\x1b[m\ncommit 0123abc\nMend it",
            ["commit 0123abc", "Mend it"],
        ),
        (f"--- old/.env\n+++ new/.env\n+{HIDDEN}\n--- a.py\n+++ a.py\n+total = 1", ["+total = 1"]),
        (f"./.env:1:{HIDDEN}\n./a.py:2:total = 1", [f"./.env:{files.WITHHELD_NOTE}", "./a.py:2:total = 1"]),
        (
            f".env-1-{HIDDEN}: b\n.env:2:{HIDDEN}\n--\na.py-3-total = 1",
            [f".env-{files.WITHHELD_NOTE}", "a.py-3-total = 1"],
        ),
        (f"HEAD:.env:{HIDDEN}\nHEAD:a.py:total = 1", ["HEAD:a.py:total = 1"]),
        (f"config/secrets.yml:  note: {HIDDEN}", [f"config/secrets.yml:{files.WITHHELD_NOTE}"]),
        (f".env\n1:{HIDDEN}\n2-{HIDDEN}\n\na.py\n3:total = 1", ["3:total = 1"]),
        (f"==> .env <==\n{HIDDEN}\n\n==> a.py <==\ntotal = 1", ["==> .env <==", "total = 1"]),
    ],
)
@pytest.mark.parametrize("tool", ["Bash", "Grep", "mcp__git__diff"])
def test_lines_that_say_they_are_from_such_a_file_are_withheld(output: str, left: list[str], tool: str) -> None:
    given = {"Bash": {"command": "git diff; grep -rn note ."}, "Grep": {"pattern": "note", "path": "/w"}}.get(tool, {})
    body = stored({"tool_name": tool, "tool_input": given, "tool_response": {"stdout": output}})
    assert HIDDEN not in repr(body)
    assert [line for line in left if line not in body.output["stdout"].split("\n")] == []
    keyed = stored({"tool_name": tool, "tool_input": given, "tool_response": {"config/.env": [HIDDEN]}})
    assert HIDDEN not in repr(keyed)


@pytest.mark.parametrize(
    "output",
    [
        "On branch main\n\tmodified:   .env\n\tnew file:   server.key\n\n?? .env\n M .env",
        ".env: No such file or directory\ncat: .env: Permission denied\n.ssh:\nid_rsa\n.env:3",
        ".gitignore:3:.env\nREADME.md:12:Copy `.env.example` to `.env`\nsrc/app.ts:4:  const port = process.env.PORT",
        " .env | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)",
        "diff --git a/.env.example b/.env.example\n--- a/.env.example\n+++ b/.env.example\n+PORT=\n--- a note\n",
        "-rw------- 1 jane jane 120 Jan  2 03:04 .env\ntotal 8\n==> done <==\n12:30 all well",
    ],
)
def test_output_that_only_names_it_stays(output: str) -> None:
    body = stored({"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": {"stdout": output}})
    assert body.output == {"stdout": output}


def test_a_text_that_is_the_name_of_one_is_no_path() -> None:
    edit = {"file_path": "/w/.gitignore", "old_string": "build", "new_string": ".env"}
    for name, given in (("Edit", edit), ("Grep", {"pattern": ".env"})):
        assert stored({"tool_name": name, "tool_input": given, "tool_response": "fine"}) == ToolUsed(
            name, given, "fine"
        )


def test_our_own_folder_is_withheld_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "kept" / "mem [1]"
    for name in (f"{folder}/token", "~/kept/mem [1]/token"):
        told = {"tool_name": "Read", "tool_input": {"file_path": name}, "tool_response": HIDDEN}
        assert stored(told, data_dir=folder).output == files.WITHHELD_NOTE
        assert stored({**told, "tool_input": {"file_path": "/kept/token"}}, data_dir=folder).output == HIDDEN
    printed = {"tool_name": "Bash", "tool_input": {"command": "cat /opt/kept/worker.json"}, "tool_response": HIDDEN}
    assert stored(printed, data_dir=Path("/opt/kept")).output == files.WITHHELD_NOTE


def test_our_own_token_is_in_no_row_whatever_printed_it(lab: Lab) -> None:
    lab.start()
    old = (lab.data / "token").read_text()
    lab.mem("token", "rotate")
    new = (lab.data / "token").read_text()
    assert old != new
    lab.hook("UserPromptSubmit", prompt=f"why is {old} refused")
    lab.hook(
        "PostToolUse", tool_name="Bash", tool_input={"command": "./debug"}, tool_response={"stdout": f"sent {new}"}
    )
    lab.hook("Stop", last_assistant_message=f"It was {new}.")
    lab.wait_digested()
    rows = b"".join(path.read_bytes() for path in lab.data.glob("claude-mem.db*"))
    assert b"why is [redacted] refused" in rows
    assert [token for token in (old, new) if token.encode() in rows] == []


@pytest.mark.parametrize(
    "named",
    [
        'cat \\".env\\"',
        "cat .env\\nls",
        "cat \\\\\\n.env\\\\\\n",
        "cat \\u002eenv",
        "cat plan.sealed",
        "cat /opt/mem/token",
    ],
)
def test_what_is_set_aside_names_such_a_file_in_any_writing(named: str) -> None:
    config = Config(withheld_files=("*.sealed",), data_dir=Path("/opt/mem"))
    broken = f'command save\nhost claude\n\n{{"tool_input":{{"command":"{named}"}},"tool_response":"{HIDDEN}"'
    assert sanitize.clean_set_aside(broken, config) == f"command save\nhost claude\n\n{files.WITHHELD_NOTE}"
    assert HIDDEN not in sanitize.clean_set_aside(broken.replace("\n\n", ""), config)
    assert HIDDEN in sanitize.clean_set_aside(broken.replace(named, "ls"), config)


def test_of_a_patch_only_the_file_of_secrets_is_withheld() -> None:
    patch = f"*** Begin Patch\n*** Update File: .env\n+{HIDDEN}\n*** Update File: a.py\n+total = 1\n*** End Patch"
    body = stored({"host": "codex", "tool_name": "apply_patch", "tool_input": {"command": patch}, "tool_response": ""})
    assert [change["patch"] for change in body.input["changes"]] == [files.WITHHELD_NOTE, "+total = 1"]


def test_a_setting_names_more_files_and_redaction_switched_off_withholds_nothing() -> None:
    told = {"tool_name": "Read", "tool_input": {"file_path": "/w/plan.sealed"}, "tool_response": HIDDEN}
    assert stored(told).output == HIDDEN
    assert stored(told, withheld_files=("*.sealed",)).output == files.WITHHELD_NOTE
    assert stored(TOLD["claude read"], redact_secrets=False).output == HIDDEN


def test_a_transcript_is_treated_likewise() -> None:
    event = Event(
        id="e", host="claude", content_session_id="s", at=0, body=ToolUsed("Read", {"file_path": "/w/.env"}, HIDDEN)
    )
    assert sanitize.clean_event(event, Config()).body == ToolUsed("Read", {"file_path": "/w/.env"}, files.WITHHELD_NOTE)


def test_what_is_set_aside_has_neither_secrets_nor_such_content(lab: Lab) -> None:
    """It could not be read as an event, so it can't be known where what stands in it."""
    key = "gh" + "p_" + "aB3" * 12
    lab.raw_spool(b"command save\nhost claude\n\nno JSON, but a key: " + key.encode())
    lab.raw_spool(b'command save\nhost claude\n\n{"tool_input": {"file_path": "/w/.env", "content": "correct horse"')
    lab.mem("drain")
    texts = sorted(path.read_text() for path in (lab.data / "aside").iterdir())
    assert [text.partition("\n\n")[2] for text in texts] == [
        "[content withheld]",
        "no JSON, but a key: [redacted github-token]",
    ]
    assert not list((lab.data / "spool").iterdir())
