"""What is in a file of secrets is not kept, whichever agent read or wrote it; that it was touched is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_mem import withheld
from claude_mem.config import Config
from claude_mem.hosts import payload
from claude_mem.pipeline import ingest
from claude_mem.records import Event, ToolUsed
from claude_mem.spool import Envelope
from tests.lab import Lab

HIDDEN = "correct horse"  # nothing of it looks like a secret: only the place says so

WITHHELD = (
    ".env", "/home/jane/shop/.env", ".env.local", ".env.production", "config/prod.env", ".envrc", "~/.ssh/id_rsa", "id_ed25519",
    "deploy/id_ecdsa_old", ".ssh/config", "server.pem", "tls/server.key", "cert.pfx", "credentials.json", "~/.aws/credentials",
    ".aws/config", ".netrc", ".npmrc", ".pypirc", "kubeconfig", "~/.kube/config", "prod.kubeconfig", ".git-credentials", ".pgpass",
    "service-account-prod.json", "config/secrets.yml", "terraform.tfvars", "C:\\Users\\jane\\.env", ".ENV", ".docker/config.json",
)  # fmt: skip
OPEN = (
    ".env.example", ".env.sample", "env.py", "src/environment.ts", "id_rsa.pub", ".ssh/known_hosts", "src/credentials.py",
    "secrets.go", "keys.py", "README.md", "monkey", "package.json", "config.json", ".kube/cache/x", "docs/secrets.md", "",
)  # fmt: skip


@pytest.mark.parametrize("path", WITHHELD)
def test_a_file_of_secrets_is_known_by_its_name(path: str) -> None:
    assert withheld.is_withheld(path, withheld.FILES)


@pytest.mark.parametrize("path", OPEN)
def test_any_other_file_is_not(path: str) -> None:
    assert not withheld.is_withheld(path, withheld.FILES)


def test_a_person_may_name_more_files_and_take_some_out() -> None:
    rules = (*withheld.FILES, "vault/*", "!*.pem")
    assert withheld.is_withheld("/srv/vault/readme.md", rules)
    assert not withheld.is_withheld("server.pem", rules)
    assert withheld.is_withheld(".env", rules)


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
    event = payload.read(Envelope("e1", {"command": "save", "host": host}, json.dumps(fields).encode()))
    body = ingest.clean(event, Config(**settings)).body
    assert isinstance(body, ToolUsed)
    return body


@pytest.mark.parametrize("how", TOLD)
def test_what_is_in_it_is_withheld_whichever_agent_touches_it(how: str) -> None:
    body = stored(TOLD[how])
    assert HIDDEN not in repr(body)
    assert ".env" in repr(body.input)  # that it was touched is known
    assert withheld.NOTE in repr(body)


@pytest.mark.parametrize(
    "command",
    [
        "cat .env", "cat /w/.env | sort", "head -n 2 ~/.aws/credentials", "grep KEY .env.local", "sed -n 1,5p config/secrets.yml",
        "while read line; do echo $line; done < .env", "base64 < id_rsa", "git show HEAD:.env", "git -C /w diff -- .env",
        "cd /w && cat ./.env", "sudo cat '/w/.env'", "less .npmrc", "awk -F= '{print $2}' .env", "/bin/cat .env*", "xargs -a .env",
    ],
)  # fmt: skip
def test_a_command_that_prints_it_keeps_its_output_to_itself(command: str) -> None:
    body = stored({"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": {"stdout": HIDDEN}})
    assert (body.input["command"], body.output) == (command, withheld.NOTE)


@pytest.mark.parametrize(
    "command",
    [f"echo '{HIDDEN}' >> .env", f"cat > /w/.env <<'EOF'\n{HIDDEN}\nEOF", f"printf '{HIDDEN}' | tee -a .npmrc"],
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
    ],
)  # fmt: skip
def test_any_other_command_keeps_what_it_printed(command: str) -> None:
    body = stored({"tool_name": "Bash", "tool_input": {"command": command}, "tool_response": "3 passed"})
    assert (body.input["command"], body.output) == (command, "3 passed")


def test_of_a_patch_only_the_file_of_secrets_is_withheld() -> None:
    patch = f"*** Begin Patch\n*** Update File: .env\n+{HIDDEN}\n*** Update File: a.py\n+total = 1\n*** End Patch"
    body = stored({"host": "codex", "tool_name": "apply_patch", "tool_input": {"command": patch}, "tool_response": ""})
    assert [change["patch"] for change in body.input["changes"]] == [withheld.NOTE, "+total = 1"]


def test_a_setting_names_more_files_and_redaction_switched_off_withholds_nothing() -> None:
    told = {"tool_name": "Read", "tool_input": {"file_path": "/w/plan.sealed"}, "tool_response": HIDDEN}
    assert stored(told).output == HIDDEN
    assert stored(told, withheld_files=("*.sealed",)).output == withheld.NOTE
    assert stored(TOLD["claude read"], redact_secrets=False).output == HIDDEN


def test_a_transcript_is_treated_likewise() -> None:
    event = Event(
        id="e", host="claude", content_session_id="s", at=0, body=ToolUsed("Read", {"file_path": "/w/.env"}, HIDDEN)
    )
    assert ingest.clean(event, Config()).body == ToolUsed("Read", {"file_path": "/w/.env"}, withheld.NOTE)


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
