"""Classifies sentences, turns them into titles, and finds the words and names in them.

Pure functions on single sentences. The patterns recognise English chat; in other languages a sentence counts as a
statement, which is the safe default: it is judged by what it names and by its position.
"""

from __future__ import annotations

import re
from functools import lru_cache

from claude_mem.digest.titles import is_table_row
from claude_mem.domain.text import shorten

TITLE_CHARS = 150

_OPENER = re.compile(
    r"""(?ix)^\W{0,3}(?:
        (?:all\ )?(?:done|set|good|clean|fixed) | perfect | great | excellent | awesome | nice | sure | ok(?:ay)? | yes | yep | yeah | no | nope
      | right | correct | exactly | absolutely | of\ course | got\ it | i\ see(?:\ now)? | understood | interesting | thanks | thank\ you | sorry | hmm+ | ah | oh | wow
      | you(?:'re|\ are|\ were)\ (?:absolutely\ |completely\ |totally\ )?(?:right|correct|welcome)(?:\ to\ [^.!?—-]{1,40})?
      | (?:good|great|excellent|nice|fair|interesting|valid)\ (?:question|idea|point|catch|news|call|progress|find|eye|thinking)
      | (?:(?:all|both)\ )?(?:the\ |these\ )?(?:changes?|fix(?:es)?|implementation|work|task|plan)\ (?:is|are|has\ been|have\ been)\ (?:now\ )?(?:done|complete|completed|finished|in\ place|implemented)
      | the\ (?:fix|change|solution)\ (?:is|was)\ (?:quite\ |very\ |actually\ )?(?:simple|straightforward|easy|small|minimal)
      | that\ makes\ sense | makes\ sense | (?:i\ )?found\ (?:it|the\ (?:issue|problem|bug|root\ cause|cause|culprit)) | here\ we\ go | updated | fixed | implemented | committed(?:\ and\ pushed)? | pushed | success | complete
    )(?:\s*[.!,:;—–-]+\s*|\s+[-–—]\s+)(?=\S)"""
)
_CHAT = re.compile(
    r"""(?ix)^\W*(?:
        i\ (?:can't|cannot|can\ not|am\ unable\ to|don't\ have\ (?:access|permission|the\ ability))\b |
        (?:all\ )?(?:done|set|good|clean|fixed|perfect|great|excellent|sure|ok(?:ay)?|yes|no|right|exactly|got\ it|i\ see|understood|interesting|sorry|updated|committed|pushed|success|complete|ready)\b\W*$
      | (?:all\ |both\ )?(?:the\ )?(?:changes?|fix(?:es)?|implementation|work|refactoring|task|everything|plan|pr|branch|document(?:ation)?)\ (?:is|are|looks?|has\ been|have\ been|was|were)\ (?:now\ )?(?:complete\w*|done|ready|good|finished|in\ place|committed|pushed|verified|updated|correct|clean)\b[^.]{0,50}\W*$
      | all\ \d+\ (?:changes?|items?|tasks?|steps?|files?|parts?)\ (?:are|have\ been|were)\b[^`]{0,50}$
      | (?:implementation|refactoring|work|fix|task)\ (?:complete|done|finished)\W*$
      | (?:i've\ |i\ )?found\ and\ fixed\ (?:the|one|an|a)\b[^`]{0,40}$ | (?:the\ )?commit\ went\ through\b | (?:i've\ |i\ )?(?:successfully\ )?implemented\ the\ (?:feature|plan|changes?|fix)\b[^`]{0,40}$
      | (?:now\ )?let\ (?:me|us)\b | (?:now\ )?i'?ll\b | i\ will\b | i'm\ (?:going|now|using|about)\b | now\ i\b | i\ (?:can\ )?(?:now\ )?(?:see|understand|have\ (?:enough|a\ clear|all))\b
      | (?:here(?:'s|\ is|\ are)|this\ is|below\ (?:is|are)|the\ following\ (?:is|are))\b[^.`]{0,90}\W*$
      | (?:looking\ (?:at|into)|based\ on|checking|to\ answer|to\ summarize|in\ summary|summary|tl;?dr|good\ news|bad\ news)\b[^.]{0,90}:?\W*$
      | (?:good|great|excellent|nice|fair|interesting)\ (?:question|idea|point|catch|news|call|progress|feedback)\b
      | you(?:'re|\ are|\ were)\ (?:absolutely\ |completely\ )?(?:right|correct|welcome)\b
      | (?:it|that|this)(?:'s|\ is)\ (?:actually\ |really\ )?(?:quite\ |very\ |pretty\ |a\ )?(?:simple|easy|straightforward|clean|cleaner|great|good|fine|correct|right|strange|odd|interesting)\b[^`]{0,40}$
      | (?:i\ )?found\ (?:it|the\ (?:issue|problem|bug|root\ cause|cause|culprit))\W*$ | dispatching\b | spec\ compliant\b
      | (?:what|how|which|why|where|when)\b[^.?]{0,60}\?$ | feel\ free\b | if\ you(?:'d|\ would)\ like\b | just\ let\ me\b | let\ me\ know\b
      | (?:try|run|test|rebuild|restart|verify|you\ can(?:\ now)?(?:\ also)?\ (?:try|run|test|verify|use|see|check))\b[^.]{0,80}[:.]?$
    )"""
)
_STATUS = re.compile(
    r"""(?ix)(?:
        \b(?:tests?|lint\w*|linter|checks?|build|ci|everything|suite|type.?check\w*|compil\w+)\b[^.;`]{0,70}\b(?:pass(?:es|ed|ing)?|clean|green|succeed\w*|works?|happy|fine|ok|0\ (?:issues|errors))\b
      | \bno\ (?:lint\w*|new|type)?\ ?(?:issues?|errors?|warnings?|failures?)\b | \b(?:build|lint|tests?)\ (?:passes|succeeds|is\ clean|are\ green)
      | \bready\ (?:to|for)\ (?:commit|merge|review|test|push|go)\b | \ball\ \d+\ tests\b
      | \b(?:branch|commit)\ (?:is\ )?(?:up\ to\ date|ahead|behind)\b | \bworking\ tree\ (?:is\ )?clean\b | \bcommitted\ (?:as|and\ pushed)\b | \bpushed\ to\b | \bchanges?\ (?:has|have)\ been\ (?:pushed|committed)
      | \b(?:i've|i\ have)\ (?:replied|responded|answered)\b | \bfile\ has\ been\ (?:updated|saved|created)\b | \bno\ changes\ (?:needed|were|made|required)\b
    )"""
)
_OFFER = re.compile(
    r"(?i)\?\W*$|\b(?:would you (?:like|prefer)|do you want|want me to|shall i|should i|let me know|if you(?:'d| would) like|which (?:one|option|approach)|your (?:call|choice|preference|thoughts))\b"
)
_DECISION = re.compile(
    r"(?i)\b(?:decided|chose|opted|deliberately|on purpose|rejected|ruled out|turned down|won't fix|by design)\b"
    r"|\b(?:instead of|rather than)\b.*\b(?:because|since|so that|as it|as they)\b"
)
_POINTING = re.compile(
    r"(?i)^\W*(?:it|its|it's|this|that|that's|these|those|they|they're|he|she|here|there|both|so|but|and|also|then|thus|therefore|however|otherwise|"
    r"instead|additionally|finally|first|second|third|next|since|because|you|your|i|i'm|i've|my|we|our|now|same|either|neither|"
    r"the (?:answer|fix|changes?|implementation|document|message|file|files|tests?|user|issue|problem|bug|code|function|command|method|same|following|above|plan|approach|solution|other|first|second|new|current|existing|only|main|key|real|actual))\b"
)
_FIRST_PERSON = re.compile(
    r"(?i)^(?:I|We)(?:'ve| have)?(?: (?:also|now|just|successfully|already|then))* (?=[a-z]+(?:ed|ilt|rote|et|ut|ade|an|lt|ent|ound|ew|ade)\b)"
)
# "…, so I added" states what was done.
_PERSON_INSIDE = re.compile(
    r"(?i)(?P<before>[,;—–-]|\b(?:so|and|but|then))(?P<space>\s{1,2})(?:I|we)(?:'ve| have)?(?: (?:also|now|just|already|then)){0,2}\s{1,2}(?=[a-z]{2,20}(?:ed|ilt|rote|et|ut|ade|ound)\b)"
)
_YOUR = re.compile(
    r"(?i)(?<=\s)your(?=\s(?!call\b|choice\b|preference\b|thoughts?\b|question\b|input\b|decision\b)[a-z`])"
)
_WE_HAVE = re.compile(r"^We (?:have|now have|already have) (?=[a-z`])")
_THERE = re.compile(r"(?i)^there(?:'s| is| are|'re)(?: (?:also|now|already|currently|still|actually))? (?=[a-z`])")
_ABLE = re.compile(r"(?i)^you can (?:now|also) (?=[a-z]{3,})")
_OPINION = re.compile(
    r"(?i)^(?:(?:honestly|actually|personally|yeah|so),? )*(?:I(?:'d| would)? (?:think|believe|suspect|say|agree)|in my (?:opinion|view))(?: that)?[,:]? (?=[`\w])"
)
_LEADING = re.compile(
    r"(?i)^(?:now,? |so,? |also,? |then,? |additionally,? |finally,? |successfully |basically,? |essentially,? |in short,? |note(?: that|:) |overall,? )+"
)
_TRAILING_SUMMARY = re.compile(
    r"(?i)[.,;:—–-]?\s{0,2}\b(?:here(?:'s| is| are) (?:a |the )?(?:summary|what|how|breakdown)\b.*+|(?:this|which) (?:ensures|means|makes)(?: sure)?(?: that)?)\Z"
)
_LINES = re.compile(
    r"(?P<file>\.[A-Za-z]{1,5}`?):\d{1,6}(?:[-–]\d{1,6})?(?:, ?\d{1,6}(?:[-–]\d{1,6})?){0,8}| ?\((?:at )?(?:lines?|L) ?~?\d{1,6}(?:[-–]\d{1,6})?\)| ?\(~?\d{1,6} (?:LOC|lines) \w{1,20}\)"
)
_LONG_PATH = re.compile(r"(?<![\w.@/-])(?:[\w.@-]++/){2,}+(?=[\w@-]++\.\w{1,5}\b)")
_PARENTHESES = re.compile(r"`[^`]*`|\"[^\"]*\"| \((?:[^()`]|`[^`]{0,100}`){3,200}+\)")
_NUMBERING = re.compile(r"\A(?:\d{1,2}[.)]|[-*•→]|[a-z]\))\s{1,3}")
_CLAUSE = re.compile(
    r"(?:[;,:]|(?<!\bvs)(?<!\betc)(?<!\be\.g)(?<!\bi\.e)(?<!\s\d)\.| [-–—])\s|\s(?=(?:because|since|so that|so|which|where|when|while|whereas|but|instead of|rather than|by \w{1,30}ing|to ensure|in order to|and|with|for|via|using|after|before|if|unless)\b)"
)
_DANGLING = re.compile(
    r"(?i)(?<![\s,;:–—-])[\s,;:–—-]++(?:a|an|the|and|or|but|nor|of|in|on|at|to|for|from|with|by|as|that|which|when|where|while|if|because|since|so|than|like|into|via|using|its|their|this|these|those|is|are|was|were|be|been|being|has|have|had|not|no|e\.g\.?|i\.e\.?|such|vs\.?|versus|about|against|between|both|covering|during|either|including|needs?|only|showing|until|whether|without|would|could|should|must|can|will|may"
    r"|only (?!if\b)\w+|(?:by|about|for|on|of|from|with|in|to|at) what(?: \w+)?|(?:that|which|who) [a-z]+)$"
)
_DANGLING_END = re.compile(
    r"(?i)(?:[:,;(—–-]|…|\.\.\.|\b(?:adds|shows?|returns|contains|includes|means|looks? like|becomes|gives|prints|a|an|the|and|or|but|nor|of|to|for|from|with|by|as|that|which|when|where|while|if|because|than|like|into|via|using|its|their|is|are|was|were|e\.g|i\.e|such"
    r"|about|against|between|covering|during|either|has|have|had|including|needs?|this|these|those|until|vs|versus|whether|without|would|could|should|must|can|will|may"
    r"|(?:used|needed|required|responsible|reserved|there) (?:still )?(?:for|in|only)|(?:that|which|both) (?:has|have|lost|need)|(?:only|active|enabled|true|false|set) (?:if|when|for)"
    r"|(?:reads|prints|says|displays|outputs|now|both)|: ?\d{1,2}[.)]?|\s\d{1,2}\.))$"
)


# "Looking at `f()`, I can see that yes, both are kept" states: "In `f()`, both are kept".
_LOOKED_AT = re.compile(
    r"(?i)^(?:so |yes,? |no,? )?(?:looking at|based on|from|according to) (?P<what>(?:the |your |my )?[^,:;]{3,70}), "
    r"(?:(?:i|we) (?:can |could |now |also )*(?:see|found|notice|confirm|understand)(?: that)?|it (?:looks|seems|appears)(?: like| that)?|it's clear(?: that)?)[,:]? (?:yes,? |no,? )?(?=[a-z`])"
)


@lru_cache(maxsize=1_024)  # a title is scored in several variants
def without_chat(sentence: str) -> str:
    """Return the sentence without the chat before it: "Perfect! …", "You're right - …"."""
    bare = _LOOKED_AT.sub(lambda match: f"In {match['what']}, " if NAME.search(match["what"]) else "", sentence.strip())
    for _ in range(3):
        shorter = _OPENER.sub("", bare, count=1)
        if shorter == bare:
            break
        bare = shorter.strip()
    return bare


@lru_cache(maxsize=1_024)
def is_chat(sentence: str) -> bool:
    """Return whether a sentence only accompanies the work, such as "let me check" or "all done"."""
    return len(sentence) < 4 or bool(_CHAT.match(sentence))


@lru_cache(maxsize=1_024)
def is_status(sentence: str) -> bool:
    """Return whether the sentence only states the current state: tests pass, ready to commit."""
    return bool(_STATUS.search(sentence))


@lru_cache(maxsize=1_024)
def is_offer(sentence: str) -> bool:
    """Return whether the sentence asks or offers something."""
    return bool(_OFFER.search(sentence))


def is_decision(sentence: str) -> bool:
    """Return whether the sentence states a choice between alternatives with its reason, or a rejection."""
    return bool(_DECISION.search(sentence))


def is_lead_in(sentence: str) -> bool:
    """Return whether a sentence only introduces what follows."""
    return sentence.rstrip().endswith((":", "："))


def is_pointing(sentence: str) -> bool:
    """Return whether the sentence begins with a word that refers to an earlier sentence."""
    return bool(_POINTING.match(sentence))


def is_fragment(text: str) -> bool:
    """Return whether the text is cut off: a table row, or an end with a colon, a comma or a word that needs another."""
    odd = text.count("`") % 2 == 1 or text.count('"') % 2 == 1
    return odd or bool(_DANGLING_END.search(text.strip())) or is_table_row(text)


def as_title(sentence: str, limit: int = TITLE_CHARS) -> str:
    """Return a sentence of the agent as a heading: the change rather than the actor, whole clauses only, no full
    stop."""
    return _heading(sentence, limit, impersonal=True)


def as_wish(sentence: str, limit: int = TITLE_CHARS) -> str:
    """Return the user's words as a heading."""
    return _heading(sentence, limit, impersonal=False)


def _heading(sentence: str, limit: int, *, impersonal: bool) -> str:
    bare = without_chat(_TRAILING_SUMMARY.sub("", sentence.strip()))
    bare = _LEADING.sub("", _FIRST_PERSON.sub("", _LEADING.sub("", bare)))
    if impersonal:
        bare = _told_as_done(with_plain_point(_OPINION.sub("", bare)))
        bare = _PERSON_INSIDE.sub(lambda match: f"{match['before']}{match['space']}", _ABLE.sub("", bare))
        bare = _YOUR.sub("the", _THERE.sub("", _WE_HAVE.sub("", bare)))
    bare = _LINES.sub(lambda match: match["file"] or "", " ".join(_NUMBERING.sub("", bare).split()))
    bare = fit_title(bare.strip(" .;,:—–-"), limit)
    return bare[:1].upper() + bare[1:]


_IRREGULAR = {
    "make": "made", "set": "set", "put": "put", "write": "wrote", "rewrite": "rewrote", "build": "built", "rebuild": "rebuilt", "split": "split",
    "hide": "hid", "keep": "kept", "send": "sent", "cut": "cut", "undo": "undid",
}  # fmt: skip
_REGULAR = frozenset(
    """
    add allow apply auto-expand avoid bump cache capture change check clarify clean clear collapse commit compare
    condense configure consolidate convert copy correct cover create default define delete deprecate detect disable disallow
    display distinguish document group batch invert map match upload analyze evaluate require separate drop dump embed enable encode ensure escape exclude expand export expose extend
    extract filter fix force format generate handle hide highlight ignore implement import improve include increase
    inject inline install integrate introduce link load log merge migrate mark mention mock mount move normalize open
    optimize parse pass persist pin port prefix prevent print propagate publish raise record reduce refactor reformat
    refresh register reject release remove rename render reorder replace reset resolve restore restrict retry return
    reuse revert save scope shorten simplify skip sort stop store strip support suppress surface switch sync
    test tighten track translate trim truncate tweak unify update upgrade use validate verify warn wire wrap
    """.split()  # noqa: SIM905 -- a literal list would be much longer
)


_DOUBLED = frozenset(
    ["stop", "drop", "skip", "wrap", "trim", "strip", "pin", "log", "scan", "plan", "ship", "swap", "commit"]
)
_FIX_LABEL = re.compile(r"(?i)^(?:bug ?)?fix: *")
# A further verb must be followed by its object: "and test coverage" contains none.
_FURTHER = re.compile(
    r"(?P<join>,? (?:and|but|then|and then|and also) |[,;] )(?P<verb>[a-z-]{3,20})(?= (?:the|a|an|all|any|each|every|its|their|it|them|this|that|these|those|sure)\b| [`\"]| [\w./-]{1,60}\.\w{1,5}\b)"
)
# These are verbs only, so they need no article after them: "detect references and suppress false conflicts".
_FURTHER_VERB = re.compile(
    r"(?P<join> and |[,;] )(?P<verb>add|remove|suppress|prevent|extract|improve|replace|simplify|introduce|delete|expand|ensure|avoid|enable|disable|convert|generate|allow|require|exclude|include|deduplicate|consolidate|clarify|rename|make|keep|hide|apply|propagate|unify|migrate|resolve|restore)(?= [\w`\"@])"
)
# After these words a verb belongs to the request's content: "allow users to add X and update the Y".
_SUBORDINATE = re.compile(
    r"(?i)\b(?:to|can|could|will|would|should|must|may|when|if|that|which|so|because|where|how|let|lets)\b"
)


# "clean this up by removing X" states the work in its second half.
_BY_DOING = re.compile(
    r"(?i)^(?:do|clean|fix|address|solve|handle|simplify|improve|resolve) (?:this|that|it|these|them)(?: up)? by (?P<verb>[a-z-]{3,20}ing)(?P<rest>\s.+)$",
    re.S,
)


def to_past_tense(line: str) -> str:
    """Return a line that begins with an imperative verb in the past tense: `add X` → `Added X`. Further verbs of the
    same sentence are changed, too: `remove X and make sure …` → `Removed X and made sure …`."""
    if (by := _BY_DOING.match(line)) and (verb := _infinitive(by["verb"].lower())):
        return to_past_tense(f"{verb}{by['rest']}")
    label = _FIX_LABEL.match(line)
    if label and (past_tense := to_past_tense(line[label.end() :])) != line[label.end() :]:
        return past_tense
    line = _FIX_LABEL.sub("Fixed: ", line)
    match = re.match(r"(?P<verb>[A-Za-z-]+)(?P<rest>\s.+)", line, re.S)
    past_tense = _past_tense(match["verb"].lower()) if match else ""
    if not match or not past_tense:
        return line
    rest = match["rest"]
    subordinate = _SUBORDINATE.search(rest)
    end = subordinate.start() if subordinate else len(rest)

    def to_past(further: re.Match[str]) -> str:
        tense = _past_tense(further["verb"]) if further.start() < end else ""
        return f"{further['join']}{tense or further['verb']}"

    return f"{past_tense.capitalize()}{_FURTHER_VERB.sub(to_past, _FURTHER.sub(to_past, rest))}"


def has_open_verb(line: str) -> bool:
    """Return whether a line in the past tense still asks for something: "Removed the flag and rebase to main"."""
    start = _SUBORDINATE.search(line)
    further = re.finditer(
        r"(?i)(?:\band|[,;]|\bthen|\balso)\s{1,2}(?P<verb>[a-z-]{3,20})\b", line[: start.start() if start else None]
    )
    return any(match["verb"] in _REGULAR | _ASKED_VERBS | _IRREGULAR.keys() for match in further)


_ASKED_VERBS = frozenset(
    ["rebase", "push", "run", "tell", "show", "see", "look", "explain", "find", "try", "do", "give", "let"]
)


def _past_tense(verb: str) -> str:
    """Return the past tense of a known verb of change, or ""."""
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb not in _REGULAR:
        return ""
    if verb.endswith("e"):
        return f"{verb}d"
    if re.search(r"[^aeiou]y$", verb):
        return f"{verb[:-1]}ied"
    return f"{verb}{verb[-1]}ed" if verb in _DOUBLED else f"{verb}ed"


_ELIDED = re.compile(r"(?P<verb>[A-Z][a-z]{2,14}s) (?:the|a|an|its|all|each|any|every|whether|if)\b")


# The rest may name much, but not what was fixed, or which two.
_NO_SUBJECT = re.compile(
    r"(?i)\W*does(?:n't| not)\b|\W*(?:(?:after|now|result|fix|solution|change|before): )?(?:the (?:\w+ )?(?:fix|solution|change|code|implementation)|both|either|neither|each)"
    r" (?:is|are|was|were|has|have|had|will|would|now|can|does|do|did|should|must|uses?|works?|adds?|makes?|ensures?|correctly|simply|just|of (?:these|those|them))\b"
)


def lacks_subject(sentence: str) -> bool:
    """Return whether the sentence lacks its subject ("Passes the string to …") or has one that names nothing ("The fix
    now …", "Both are …")."""
    if _NO_SUBJECT.match(sentence):
        return True
    match = _ELIDED.match(sentence)
    if not match:
        return False
    verb = match["verb"].lower()
    stems = (verb[:-1], verb.removesuffix("es"), f"{verb.removesuffix('ies')}y")
    return any(stem in _REGULAR or stem in _IRREGULAR for stem in stems)


def _infinitive(gerund: str) -> str:
    """Return the known verb of a gerund: "removing" → "remove"; "" if there is none."""
    stem = gerund.removesuffix("ing")
    return next((verb for verb in (stem, f"{stem}e", stem[:-1]) if verb in _REGULAR or verb in _IRREGULAR), "")


_FIX_WAS = re.compile(
    r"(?i)^the (?:(?:key|main|real|actual|only|core|important) )?(?:fix|change|solution) was (?:to )?(?P<verb>[a-z-]{3,20})(?P<rest>\s.+)$",
    re.S,
)


_FIX_DOES = re.compile(
    r"(?i)^the (?:fix|change|solution|implementation) (?:now |also )?(?P<verb>[a-z-]{3,20}s) (?P<rest>(?:the|a|an|all|any|each|every|its|`)\S{0,80} ?.+|\w+ for .+)$",
    re.S,
)


_POINT = re.compile(
    r"(?i)^(?:so )?the (?:actual |real |core |main |underlying |key )?(?:(?P<fault>issue|problem|bug)|(?P<cause>root cause|cause|reason)|(?P<fix>fix|solution|simplest fix|cleanest fix|best fix))"
    r"(?: here)?(?::| (?:is|was)(?: that|:)| (?:should|would|could) be(?: to|:)) +(?=\S)"
)


def with_plain_point(sentence: str) -> str:
    """Return "The issue is that X" as "Problem: X", "The fix should be: X" as "Proposed fix: X"."""
    match = _POINT.match(sentence)
    if not match:
        return sentence
    proposes = re.search(r"(?i)\b(?:should|would|could) be\b", match[0])
    name = "Problem" if match["fault"] else "Root cause" if match["cause"] else "Proposed fix" if proposes else "Fix"
    return f"{name}: {sentence[match.end() :]}"


def _told_as_done(sentence: str) -> str:
    """Return "The key fix was adding X" and "The fix adds the X" as "Added X"."""
    if does := _FIX_DOES.match(sentence):
        stems = (does["verb"][:-1], does["verb"].removesuffix("es"), f"{does['verb'].removesuffix('ies')}y")
        past = next((tense for stem in stems if (tense := _past_tense(stem.lower()))), "")
        return f"{past.capitalize()} {does['rest']}" if past else sentence
    match = _FIX_WAS.match(sentence)
    if not match:
        return sentence
    verb = match["verb"].lower()
    past_tense = _past_tense(verb) or _past_tense(_infinitive(verb))
    return (
        f"{past_tense.capitalize()}{match['rest']}".replace(" - that's what was ", ", which was ")
        if past_tense
        else sentence
    )


def fit_title(text: str, limit: int) -> str:
    """Shorten a line to whole clauses: remove directories, then parentheses, then the last clauses."""
    if len(text) > limit:
        text = _LONG_PATH.sub("", text)
    while len(text) > limit and (
        parentheses := [match for match in _PARENTHESES.finditer(text) if match[0][-1] == ")"]
    ):
        text = text[: parentheses[-1].start()] + text[parentheses[-1].end() :]
    if len(text) <= limit:
        return text
    ends = [
        match.start()
        for match in _CLAUSE.finditer(text)
        if limit * 0.4 <= match.start() <= limit and text[: match.start()].count("`") % 2 == 0
    ]
    for end in reversed(ends):
        if not is_fragment(line := strip_dangling(text[:end])) and len(line) >= limit * 0.35:
            return line
    return strip_dangling(text[: ends[-1]] if ends else shorten(text, limit).rstrip("…"))


def without_parentheses(text: str) -> str:
    """Return the text without parentheses, except those in code and quotes."""
    return _PARENTHESES.sub(lambda match: "" if match[0][-1] == ")" else match[0], text)


def strip_dangling(text: str) -> str:
    """Return the text without trailing words that need another, and without an unclosed backtick or bracket."""
    if text.count("`") % 2:
        text = text[: text.rfind("`")]
    if text.rfind("(") > text.rfind(")"):
        text = text[: text.rfind("(")]
    before = ""
    while before != text:
        before, text = text, _DANGLING.sub("", text.rstrip(" ,;:.–—-"))
    return text


# --- words and names -------------------------------------------------------------------------------------------------


NAME = re.compile(
    r"`[^`\n]{2,80}`|(?<![\w./-])[\w-]++(?:[./][\w-]++)++|\b[a-z]++[A-Z]\w*+|\b[A-Z][a-z]++[A-Z]\w*+|\b[^\W_]++_\w++|(?<![\w-])--[a-z][\w-]*+|#\d{1,9}|\b[A-Z][A-Z0-9]++(?:-\d{1,9})?\b|\b\w++\(\)"
)
_WORD = re.compile(r"[^\W\d_]{2,}|\d+")
_PART = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_STOP = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have how i if in into is it its just let
    me more my no not now of on only or our out over should so some such than that the their them then there these
    they this those through to too up us use used uses using was we were what when where which while who why will
    with would you your yes also all any both each other same very via per please
    """.split()  # noqa: SIM905 -- a literal list would be much longer
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "e")


@lru_cache(maxsize=4_096)
def content_words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, with identifiers split, roughly stemmed."""
    words = _WORD.findall(_PART.sub(" ", text).lower())
    return frozenset(_stem(word) for word in words if word not in _STOP)


@lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    for end in _ENDINGS:
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word


@lru_cache(maxsize=4_096)
def names(text: str) -> tuple[str, ...]:
    """Return the identifiers, paths, options and other names in a text, without duplicates and backticks."""
    return tuple(dict.fromkeys(match.strip("`") for match in NAME.findall(text)))
