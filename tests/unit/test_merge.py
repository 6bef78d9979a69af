"""A model's words, joined with the evidence: what is claimed is not believed, what was seen is not lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claude_mem.digest import provenance, writer
from claude_mem.digest.merge import add_pending, merge_reply
from claude_mem.digest.models.base import Verdict
from claude_mem.digest.reply import ParsedObservation, ParsedReply
from claude_mem.domain.records import Author, Body, Digest, Prompted, Stopped, Summary, ToolUsed, Turn

BY = Author("fake", "fake-1", "mem-1")
EDIT = ToolUsed("Edit", {"file_path": "/p/src/cart.py", "old_string": "a", "new_string": "def total(): ..."}, {})
READ = ToolUsed("Read", {"file_path": "/p/src/tax.py"}, "rates")
COMMIT = ToolUsed(
    "Bash", {"command": "git commit -m 'Round once'"}, {"stdout": "[main abc1234] Round once\n 1 file changed"}
)


def turn(*bodies: Body, known: frozenset[str] = frozenset()) -> Turn:
    told = (Prompted("Fix the cart"), *bodies, Stopped("I fixed the total in cart.py. Rounding happens once now."))
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="Fix the cart", root="/p", started_at=0, ended_at=1,
        bodies=told, seqs=tuple(range(10, 10 + len(told))), known_titles=known,
    )  # fmt: skip


def joined(work: Turn, *told: ParsedObservation, summary: Summary | None = None) -> Digest:
    return merge_reply(
        work, writer.compose_digest(work), ParsedReply(verdict=Verdict.OK, observations=told, summary=summary), BY
    )


def test_files_are_those_that_tools_touched_under_their_real_names() -> None:
    said = ParsedObservation(
        type="bugfix",
        title="The cart total is rounded once",
        files_modified=("cart.py", "/etc/passwd", "src/other.py"),
        files_read=("/somewhere/p/src/tax.py", "nope.py"),
    )
    (found,) = joined(turn(READ, EDIT), said).observations
    assert found.files_modified == ("src/cart.py",)
    assert found.files_read == ("src/tax.py",)


def test_a_model_that_names_no_file_gets_those_that_were_edited() -> None:
    (found,) = joined(turn(EDIT), ParsedObservation(type="bugfix", title="Totals")).observations
    assert found.files_modified == ("src/cart.py",)


def test_a_commit_stays_with_the_observation_that_speaks_of_it() -> None:
    said = ParsedObservation(
        type="bugfix", title="Round once: the cart total is rounded at the end", facts=("total() sums first",)
    )
    (found,) = joined(turn(EDIT, COMMIT), said).observations
    assert found.commit == "abc1234"
    assert found.key == "work"
    assert found.facts[0].text == "total() sums first"
    assert any(fact.text.startswith("Commit abc1234: Round once") for fact in found.facts)


def test_a_commit_nobody_speaks_of_stays_by_itself() -> None:
    said = ParsedObservation(type="discovery", title="Zebra stripes differ", narrative="Unrelated")
    found = joined(turn(EDIT, COMMIT), said).observations
    assert found[0].title == "Zebra stripes differ"
    assert [item.commit for item in found] == ["", "abc1234"]


def test_every_fact_has_its_events() -> None:
    said = ParsedObservation(type="bugfix", title="Cart", facts=("src/cart.py sums first", "the user was happy"))
    (found,) = joined(turn(READ, EDIT), said).observations
    by_text = {fact.text: fact.events for fact in found.facts}
    assert by_text["src/cart.py sums first"] == (12,)
    assert by_text["the user was happy"] == (13,)


def test_what_is_remembered_already_is_not_repeated() -> None:
    work = turn(EDIT, known=frozenset({"the cart is rounded once"}))
    found = joined(work, ParsedObservation(type="bugfix", title="The cart is rounded once!")).observations
    assert found == writer.compose_digest(work).observations


def _answer() -> Turn:
    """A turn in which nothing was done: the agent explained something."""
    words = "Rounding runs once for each line because `total()` calls `round()` inside its loop, so cents get lost."
    told = (Prompted("Why does the cart total differ from the receipt?"), READ, Stopped(words))
    return replace(turn(), prompt=told[0].text, bodies=told, seqs=(10, 11, 12))


def test_where_a_model_finds_nothing_the_draft_of_a_mere_answer_goes() -> None:
    work = _answer()
    assert [draft.key for draft in writer.compose_digest(work).observations] == ["answer"]
    assert joined(work).observations == ()
    told = ParsedObservation(type="discovery", title="`total()` rounds each line, so cents are lost")
    assert len(joined(work, told).observations) == 1


def test_what_a_person_vouches_for_is_no_mere_answer() -> None:
    work = _answer()
    draft = writer.compose_digest(work)
    mine = replace(draft, observations=tuple(replace(item, trust="user") for item in draft.observations))
    assert len(merge_reply(work, mine, ParsedReply(verdict=Verdict.OK), BY).observations) == 1


def test_without_observations_the_draft_stands() -> None:
    work = turn(EDIT)
    assert joined(work).observations == writer.compose_digest(work).observations


def test_the_summary_is_the_models_where_it_says_something_and_the_drafts_where_not() -> None:
    work = turn(EDIT)
    found = joined(work, summary=Summary(completed="Totals are right", files_edited=("invented.py",))).summary
    draft = writer.compose_digest(work).summary
    assert found is not None
    assert draft is not None
    assert (found.completed, found.request, found.files_edited) == ("Totals are right", draft.request, ("src/cart.py",))


def test_a_model_that_says_how_a_turn_ended_says_by_an_empty_field_that_nothing_is_open() -> None:
    work = turn(EDIT)
    draft = writer.compose_digest(work)
    assert draft.summary is not None
    wrong = replace(draft, summary=replace(draft.summary, completed="An offer", next_steps="Paint the doors"))

    def summary(said: Summary) -> Summary:
        made = merge_reply(work, wrong, ParsedReply(verdict=Verdict.OK, summary=said), BY).summary
        assert made is not None
        return made

    asked = summary(Summary(request="Fix the cart", outcome="answered"))
    assert (asked.completed, asked.next_steps) == ("", "")
    assert summary(Summary(request="Fix the cart")).next_steps == "Paint the doors", "it may have been cut off"


def test_a_check_that_was_seen_to_fail_stays_open_whatever_a_model_says() -> None:
    work = turn(EDIT)
    draft = writer.compose_digest(work)
    assert draft.summary is not None
    failing = "`pytest -q` fails: KeyError: 'cash'"
    seen = replace(draft, summary=replace(draft.summary, next_steps=f"Paint the doors\n{failing}"))
    for said, steps in (
        ("", failing),
        ("Mend the drawer", f"Mend the drawer\n{failing}"),
        ("`pytest -q` still fails", "`pytest -q` still fails"),
    ):
        made = merge_reply(
            work, seen, ParsedReply(verdict=Verdict.OK, summary=Summary(next_steps=said, outcome="partly")), BY
        ).summary
        assert made is not None
        assert made.next_steps == steps


ENDED = Summary(
    request="Fix the cart",
    completed="x",
    closing="I fixed **it**.\n\n- one",
    closing_trust="external",
    outcome="failed",
)


def ended(said: Summary | None, *bodies: Body, outcome: str = "failed") -> Summary:
    """What the summary of a turn becomes whose draft is `ENDED`, with that outcome."""
    work = turn(*bodies)
    draft = replace(writer.compose_digest(work), summary=replace(ENDED, outcome=outcome))
    summary = merge_reply(work, draft, ParsedReply(verdict=Verdict.OK, summary=said), BY).summary
    assert summary is not None
    return summary


def test_the_closing_message_stays_word_for_word() -> None:
    told = Summary(completed="Totals are right", closing="mine", closing_trust="agent")
    found = ended(told, EDIT)
    assert (found.completed, found.closing, found.closing_trust) == ("Totals are right", ENDED.closing, "external")


@pytest.mark.parametrize(
    ("draft", "said", "bodies", "outcome"),
    [
        ("done", "", (EDIT,), "done"),
        ("done", "partly", (EDIT,), "partly"),
        ("", "done", (EDIT,), "done"),
        ("partly", "done", (COMMIT,), "done"),
        ("done", "proposed", (), "proposed"),
        ("failed", "done", (EDIT,), "failed"),  # a test was seen to fail at the end
        ("abandoned", "done", (EDIT,), "abandoned"),
        ("proposed", "done", (READ,), "proposed"),
        ("", "done", (READ,), "answered"),  # nothing was done
        ("answered", "done", (), "answered"),
    ],
)
def test_an_outcome_is_the_models_unless_the_evidence_denies_it(
    draft: str, said: str, bodies: tuple[Body, ...], outcome: str
) -> None:
    assert ended(Summary(completed="x", outcome=said), *bodies, outcome=draft).outcome == outcome


def test_without_a_summary_of_the_model_the_drafts_stands() -> None:
    assert ended(None, EDIT) == ENDED


def test_a_summary_that_is_held_back_does_not_come_as_an_observation() -> None:
    page = ToolUsed("WebFetch", {"url": "https://example.org/x"}, "a page")
    work = turn(page, EDIT)
    said = ParsedReply(verdict=Verdict.OK, summary=Summary(completed="The page says that totals are wrong"))
    taint = provenance.find_taint(work)
    assert taint is not None
    made = add_pending(work, writer.compose_digest(work), said, BY, taint)
    assert made.observations == writer.compose_digest(work).observations
    assert "page says" not in str(made)


def test_two_observations_do_not_share_one_key() -> None:
    said = [ParsedObservation(type="bugfix", title=f"The cart total is rounded once, part {n}") for n in range(3)]
    keys = [item.key for item in joined(turn(EDIT, COMMIT), *said).observations]
    assert len(set(keys)) == len(keys)


DECIDED = (
    "German prices are parsed now: `parse_price` drops the thousands dots. I decided to return `Decimal` instead of"
    " `float`, because sums of floats were off by a cent."
)
PARSED = ParsedObservation(
    type="bugfix",
    title="German prices are parsed in cart.py",
    narrative="`parse_price` drops the thousands dots and turns the decimal comma into a point.",
    files_modified=("cart.py",),
)


def told_at_the_end(message: str, *bodies: Body, prompt: str = "Fix the cart") -> Turn:
    told = (Prompted(prompt), *bodies, Stopped(message))
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt=prompt, root="/p", started_at=0, ended_at=1,
        bodies=told, seqs=tuple(range(10, 10 + len(told))),
    )  # fmt: skip


def decisions(digest: Digest) -> list[str]:
    return [item.title for item in digest.observations if item.type == "decision"]


@pytest.mark.parametrize("bodies", [(EDIT,), (EDIT, COMMIT), (READ, EDIT, COMMIT)])
def test_a_decision_that_the_answer_does_not_repeat_stays(bodies: tuple[Body, ...]) -> None:
    work = told_at_the_end(DECIDED, *bodies)
    made = joined(work, PARSED)
    assert "Decimal" in repr([(item.title, item.facts) for item in made.observations])
    assert [item.title for item in made.observations].count(PARSED.title) == 1


@pytest.mark.parametrize(
    "said",
    [
        ParsedObservation(
            type="decision", title="Return Decimal rather than float", narrative="Float sums were off by one cent."
        ),
        ParsedObservation(
            type="bugfix", title="Prices", facts=("Decided to return Decimal, as summing floats is off by a cent",)
        ),
        ParsedObservation(type="decision", title=f"Decided {DECIDED.partition('decided ')[2]}"),
    ],
)
def test_a_decision_that_the_answer_repeats_is_not_doubled(said: ParsedObservation) -> None:
    made = joined(told_at_the_end(DECIDED, EDIT, COMMIT), PARSED, said)
    assert [item.title for item in made.observations] == [PARSED.title, said.title]


def test_of_two_decisions_the_one_that_is_not_repeated_stays() -> None:
    both = f"{DECIDED} I chose to keep the parser in one module rather than in a package, since it is small."
    said = ParsedObservation(
        type="decision", title="Return Decimal instead of float", narrative="Sums of floats were off by a cent."
    )
    made = joined(told_at_the_end(both, EDIT), said)
    assert "parser in one module" in repr([(item.title, item.facts) for item in made.observations])
    assert repr(made.observations).count("Decimal") == 1, "what the answer repeats is not doubled"


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        ("No, never use requests here. Use urllib, the proxy blocks it.", "Never use requests here"),
        ("Always run make fmt", "Always run make fmt"),
    ],
)
def test_the_users_own_rule_stays_and_a_models_repetition_of_it_does_not(prompt: str, rule: str) -> None:
    work = told_at_the_end("cart.py loads its rates with urllib now and is formatted.", EDIT, prompt=prompt)
    said = ParsedObservation(type="change", title="cart.py loads its rates with urllib", files_modified=("cart.py",))
    for kind in ("rule", "decision"):
        made = joined(work, said, ParsedObservation(type=kind, title=f"The user: {rule}"))
        assert [(item.title, item.trust) for item in made.observations if item.type == "rule"] == [(rule, "agent")]
        assert decisions(made) == []
    assert [item.title for item in joined(work, said).observations][:2] == [rule, said.title]


def test_a_models_rule_is_the_users_own_words_or_a_decision() -> None:
    work = told_at_the_end("Done.", EDIT, prompt="Rename the cart. Our house style: sentence case in all headings")
    said = ParsedObservation(type="rule", title="sentence case in all headings", narrative="The model's own words")
    (rule,) = [item for item in joined(work, said).observations if item.type == "rule"]
    assert (rule.title, rule.narrative) == (said.title, said.title)
    assert rule.key.startswith("rule:")
    for invented in ("Headings must never have a full stop", "rename the cart in this file"):
        made = joined(work, ParsedObservation(type="rule", title=invented))
        assert [item.type for item in made.observations if item.title == invented] == ["decision"]


def test_an_edit_that_no_answer_tells_of_stays() -> None:
    said = [
        ParsedObservation(type="discovery", title=f"Zebra {name} differ", narrative="Unrelated")
        for name in ("stripes", "hoofs")
    ]
    made = joined(turn(EDIT), *said)
    assert [item.files_modified for item in made.observations] == [(), (), ("src/cart.py",)]
