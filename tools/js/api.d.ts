// Made by docs/generate.py from src/claude_mem/worker/http/schemas. Do not edit.

declare namespace Api {
  /** What was done on one day. */
  interface ActiveDay {
    day: string;
    observations: number;
    sessions: number;
    turns: number;
  }

  /** A session that is active, its last turn and its last event. */
  interface ActiveSession {
    id: number;
    title: string | null;
    host: string;
    project_id: number;
    project: string;
    status: string;
    started_at: number;
    last_event_at: number;
    turn: number | null;
    private: boolean;
    since: number | null;
    open: boolean;
    last_event: LastEvent | null;
  }

  /** Active sessions, jobs that run, wait or failed, the spool, a running back-fill. */
  interface Activity {
    at: number;
    sessions: ActiveSession[];
    working: RunningJob[];
    queue: QueueState;
    troubles: RetryingJob[];
    set_aside: number;
    backfill: BackfillActivity | null;
    spool: number;
  }

  /** The credential of a browser that has logged in, and the page it asked for. */
  interface Admission {
    credential: string;
    path: string;
  }

  /** A row that a deletion would delete. */
  interface AffectedTitle {
    kind: string;
    id: number;
    title: string;
    at: number;
  }

  /** The sessions of one agent in a project. */
  interface AgentSessions {
    host: string;
    sessions: number;
    last_at: number;
  }

  /** An identity by which a project is recognized. */
  interface Alias {
    identity: string;
    kind: string;
    what: string;
  }

  /** A page of the approval queue, the number of all that wait, and where they come from. */
  interface ApprovalQueue {
    items: any[];
    hasMore: boolean;
    offset: number;
    limit: number;
    total: number;
    sources: QueueSource[];
  }

  /** The last entries of the audit log, the number of lines, and what is wrong with its hash chain. */
  interface AuditLog {
    items: any[];
    lines: number;
    wrong: string[];
  }

  /** The last result of the periodic self-checks. `at` is null before the first. */
  interface AuditState {
    at: number | null;
    ok: boolean;
    wrong: Finding[];
  }

  /** The progress of the running back-fill. */
  interface BackfillActivity {
    files: number;
    done: number;
    bytes: number;
    bytes_done: number;
    digesting: number;
  }

  /** A transcript that was not read, or not completely. `error`: the error of a job that was given up. */
  interface BackfillFileProblem {
    path: string;
    problem: string;
    state?: string;
    bad_lines?: number | null;
    error?: string | null;
  }

  /** The state of the latest back-fill. */
  interface BackfillProgress {
    backfill: number | null;
    asked_at: number | null;
    files: number;
    read: number;
    skipped: number;
    bytes: number;
    bytes_done: number;
    waiting: number;
    digesting: number;
    busy: boolean;
    new: BackfillRows;
    problems: BackfillFileProblem[];
  }

  /** What was enqueued. */
  interface BackfillQueued {
    backfill: number | null;
    unchanged: number;
    status: string;
  }

  /** Rows that a back-fill added. */
  interface BackfillRows {
    sessions: number;
    turns: number;
    events: number;
    observations: number;
  }

  /** The result of checking an intact backup. */
  interface BackupCheck {
    path: string;
    size: number;
    version: number;
    counts: Record<string, number>;
    strange: string[];
  }

  /** A backup, with the row counts of the database at the time it was made. */
  interface BackupCopy {
    path: string;
    size: number;
    counts: Record<string, number>;
    digest?: string;
  }

  /** The number and size of all backups, their restore drills, and the last daily backup. */
  interface BackupsState {
    count: number;
    size: number;
    newest: NewestBackup | null;
    drills: Record<string, Drill>;
    last: CheckRecord | null;
  }

  /** The number of files that were skipped. */
  interface Cancelled {
    dropped: number;
  }

  /** The challenge that a page signs to log in again. */
  interface Challenge {
    challenge: string;
  }

  /** The newest result of a periodic check. */
  interface CheckRecord {
    at: number;
    ok: number;
    text: string;
  }

  /** The event counts, and whether they add up. */
  interface CheckedAccount {
    captured: number;
    stored: number;
    queued: number;
    set_aside: number;
    filtered: number;
    filtered_by: Record<string, number>;
    set_aside_by: Record<string, number>;
    faded: number;
    adds_up: boolean;
  }

  /** The start context at a commit. */
  interface ContextAt {
    project: string;
    commit: string;
    context: string;
  }

  /** Id and name of a project. */
  interface ContextProject {
    id: number;
    name: string;
  }

  /** The settings that limit a start context. */
  interface ContextSettings {
    context_tokens: number;
    context_observations: number;
  }

  /** A row that repeats an observation, with the number of words that both have. */
  interface Copy {
    id: number;
    kind: string;
    shared: number;
    words: number;
  }

  /** Requests to models and their cost by group, and the state of refining. */
  interface CostReport {
    providers: string[];
    today_tokens: number;
    daily_tokens: number;
    month_cost: number;
    monthly_cost: number;
    waiting: number;
    paused: PausedProvider[];
    prices_problem: string;
    problem: string;
    items: LedgerGroup[];
  }

  /** Requests to models by day: all days of the period, and the usage on those that have any. */
  interface DailyCost {
    providers: string[];
    today_tokens: number;
    daily_tokens: number;
    month_cost: number;
    monthly_cost: number;
    waiting: number;
    paused: PausedProvider[];
    prices_problem: string;
    problem: string;
    days: string[];
    items: DailyUsage[];
  }

  /** The usage of one model or project (`id`) on one day. */
  interface DailyUsage {
    requests: number;
    input_tokens: number;
    cached_tokens: number;
    output_tokens: number;
    cost: number;
    failed: number;
    day: string;
    name: string;
    id: number;
  }

  /** The row counts, and the size of the file in bytes. */
  interface DatabaseCounts {
    projects?: number;
    sdk_sessions?: number;
    turns?: number;
    user_prompts?: number;
    events?: number;
    session_summaries?: number;
    observations?: number;
    jobs?: number;
    dead_jobs?: number;
    last_event_at?: number | null;
    size?: number;
  }

  /** The days of a year on which something was done. */
  interface Days {
    items: ActiveDay[];
    year: number;
  }

  /** What goes with an observation, and which rows about the same thing stay. */
  interface DeletionOfOne {
    id: number;
    title: string | null;
    forgotten: boolean;
    type: string;
    created_at: number;
    undo_until: number | null;
    project_id: number;
    into: number | null;
    goes: GoesWithIt;
    stays: Copy[];
    backups: number;
  }

  /** What a deletion would delete, and whether that is nothing. */
  interface DeletionPreview {
    counts: Record<string, number>;
    made_again: number;
    first: AffectedTitle[];
    empty: boolean;
  }

  /** Progress of a deletion and, once it has ended, its result. */
  interface DeletionProgress {
    number?: number;
    erased?: boolean;
    busy?: boolean;
    doing?: string;
    done?: number;
    total?: number;
    counts?: Record<string, number>;
    undo_until?: number | null;
    copies?: Record<string, string[]>;
    left?: string[];
    error?: string;
  }

  /** What was restored of a deletion. */
  interface DeletionUndone {
    counts: Record<string, number>;
    projects: number[];
    number: number;
  }

  /** A job as the user sees it. `dropping`: what happens if it is dropped; "" if that is impossible. */
  interface DescribedJob {
    id: number;
    kind: string;
    due_at: number;
    attempts: number;
    error: string | null;
    created_at: number;
    dead: boolean;
    about: string;
    session_id: number | null;
    dropping: string;
  }

  /** A folder in which memory is off: the setting or file that turns it off, and what it says. */
  interface DisabledFolder {
    folder: string;
    by: string;
    what: string;
  }

  /** The size of each part in bytes, and the free space on its disk. */
  interface DiskUsage {
    parts: Record<string, number>;
    all: number;
    free: number;
    total: number;
  }

  /** An observation before it is stored. `key` identifies the evidence it is based on: processing the same turn again yields the same key and so updates the row instead of adding one. */
  interface Draft {
    key: string;
    type: string;
    title: string;
    subtitle?: string;
    narrative?: string;
    facts?: Fact[];
    concepts?: string[];
    files_read?: string[];
    files_modified?: string[];
    commit?: string;
    trust?: string;
    why?: string;
  }

  /** The result of the test restore of a backup. */
  interface Drill {
    at: number;
    ok: boolean;
    text: string;
  }

  /** The job that was dropped, and what that means. */
  interface Dropped {
    dropped: number;
    means: string;
  }

  interface Error {
    error: string;
    hint: string;
    field?: string;
  }

  /** A difference with its 95 % interval. `samples` of at least `needed` are there; with fewer, nothing is claimed. */
  interface Estimate {
    samples: number;
    needed: number;
    value?: number | null;
    low?: number | null;
    high?: number | null;
  }

  /** How many events were captured, and how many of them are in each state. */
  interface EventAccount {
    captured: number;
    stored: number;
    queued: number;
    set_aside: number;
    filtered: number;
    filtered_by: Record<string, number>;
    set_aside_by: Record<string, number>;
    faded: number;
  }

  /** An event without its content. */
  interface EventLine {
    seq: number;
    at: number;
    source: string;
    event_id: string;
    turn_id: number | null;
    kind: string;
    tool_use_id: string | null;
    origin: string;
    tool: string | null;
    failed: number;
  }

  /** A part of the events. */
  interface EventsPage {
    items: RawEvent[];
    hasMore: boolean;
    from: number;
    limit: number;
  }

  /** Values to filter by. */
  interface Facets {
    types: TypeFacet[];
    concepts: string[];
    hosts: HostFacet[];
    projects: ProjectSummary[];
  }

  /** A factual statement and the events that support it. */
  interface Fact {
    text: string;
    events?: number[];
  }

  /** A turn that could not be digested again. */
  interface FailedTurn {
    turn: number;
    error: string;
  }

  /** A part of the feed. `next`: the `before` of the next part; "" if there is none. */
  interface Feed {
    items: any[];
    next: string;
  }

  /** A file, or a folder with its number of `files`: how often they were edited and read, and when last. */
  interface FileEntry {
    kind: "file" | "folder";
    name: string;
    path: string;
    edited: number;
    read: number;
    newest_at: number;
    files?: number;
  }

  /** One level of the tree of files. */
  interface Files {
    items: FileEntry[];
    under: string;
  }

  /** The result of one self-check, as the user sees it. */
  interface Finding {
    name: string;
    ok: boolean;
    found: string;
    hint: string;
  }

  /** The turn in which a command passed again, and when. */
  interface FixPoint {
    turn: number;
    at: number;
  }

  /** The observation that was forgotten (until when that can be undone), or erased (all that went with it). */
  interface Forgotten {
    status: "erased" | "forgotten";
    id: number;
    ids?: number[];
    undo_until?: number;
  }

  /** What a deletion takes with it: index entries, changes, merged observations, and the starts that mention it. */
  interface GoesWithIt {
    index: IndexEntries;
    history: number;
    merged: number[];
    starts: string[];
  }

  /** The state of the worker, and current problems; none if the list is empty. */
  interface HealthPage {
    at: number;
    process: ProcessState;
    account: CheckedAccount;
    spool: number;
    queue: JobStates;
    jobs: DescribedJob[];
    aside: SetAside;
    backup: BackupsState;
    damage: string[];
    checks: Record<string, CheckRecord | null>;
    disk: DiskUsage;
    times: ResponseTimes[];
    refining: RefiningState;
    audit: AuditState;
    door: string[];
    settings: string[];
    secret_rules: string[];
    concerns: Issue[];
  }

  /** One change of an observation. `undo`: this is the change that undoing would revert. */
  interface HistoryEntry {
    at: number;
    before: any | null;
    by: string;
    id: number;
    undo: boolean;
    undone: boolean;
    what: string;
  }

  /** Moments at which something was said, moments that were kept silent by chance, and how they differ. */
  interface HoldoutEffect {
    setting: number;
    spoken: number;
    silent: number;
    used: Estimate;
    characters: Estimate;
  }

  /** An agent. */
  interface HostFacet {
    name: string;
    title: string;
  }

  /** The id of the import, and what the file is. */
  interface ImportStarted {
    id: number;
    source: string;
  }

  /** Progress or result of an import. `counts`: by outcome or reason, then by kind. */
  interface ImportStatus {
    id: number;
    path: string;
    mark: string;
    source: string;
    project: string;
    untrusted: boolean;
    dry_run: boolean;
    position: string;
    done: number;
    total: number;
    counts: Record<string, Record<string, number>>;
    notes: string[];
    error: string | null;
    started_at: number;
    ended_at: number | null;
  }

  /** How many rows of the index belong to an observation. */
  interface IndexEntries {
    documents: number;
    passages: number;
    signals: number;
    vectors: number;
  }

  /** Progress of the index. `embeddable`: documents that get vectors; `busy`: it is not complete. */
  interface IndexProgress {
    documents: number;
    stale: number;
    vectors: number;
    model: string | null;
    ready: boolean;
    owed: boolean;
    embeddable: number;
    busy: boolean;
  }

  /** `owed`: whether vectors are still to be computed. */
  interface IndexState {
    documents: number;
    stale: number;
    vectors: number;
    model: string | null;
    ready: boolean;
    owed: boolean;
  }

  /** A file, call or memory of an injection, and whether the session used it (null: unknown) and how. */
  interface InjectedItem {
    kind: string;
    used: boolean | null;
    how: string;
    path?: string;
    id?: number | null;
    type?: string | null;
    title?: string;
  }

  /** Which instruction files were checked, how many of their statements name something that the repository has or had, and the lines that no longer hold. */
  interface InstructionReview {
    files: string[];
    statements: number;
    items: OutdatedStatement[];
  }

  /** A current problem and what to do about it. */
  interface Issue {
    level: "bad" | "warn";
    text: string;
    hint: string;
  }

  /** A whole list. */
  interface ItemsOfHistoryEntry {
    items: HistoryEntry[];
  }

  /** A whole list. */
  interface ItemsOfMemoryItem {
    items: any[];
  }

  /** A whole list. */
  interface ItemsOfTrustedSource {
    items: TrustedSource[];
  }

  /** How many jobs of a kind wait, wait for a retry, and are dead letters. */
  interface JobKindCounts {
    kind: string;
    waiting: number;
    retrying: number;
    dead: number;
  }

  /** The number of jobs by state, and the time of the oldest that is not a dead letter. */
  interface JobStates {
    waiting: number;
    retrying: number;
    dead: number;
    oldest_at: number | null;
  }

  /** The number of memories that were judged. */
  interface Judged {
    count: number;
  }

  /** A part of the sessions of a period. */
  interface Lanes {
    items: SessionLane[];
    hasMore: boolean;
    offset: number;
    limit: number;
    from: number;
    to: number;
  }

  /** Kind and tool of an event. */
  interface LastEvent {
    at: number;
    kind: string;
    tool: string | null;
  }

  /** The usage of one day, month, project, model, session or verdict. */
  interface LedgerGroup {
    requests: number;
    input_tokens: number;
    cached_tokens: number;
    output_tokens: number;
    cost: number;
    failed: number;
    name: string | number;
  }

  /** One request to a model. */
  interface LedgerLine {
    id: number;
    at: number;
    ended_at: number | null;
    purpose: string;
    session_id: number | null;
    turn_id: number | null;
    project: string | null;
    provider: string;
    model: string;
    input_tokens: number;
    cached_tokens: number;
    written_tokens: number;
    output_tokens: number;
    cost: number;
    verdict: string | null;
    message: string | null;
    memory_session_id: string | null;
  }

  /** Whether the other machines were told; if not, the reason. */
  interface Left {
    told: boolean;
    problem?: string;
  }

  /** Use of shown items by the sessions that saw them, and by other sessions that did not. `p`: of at least this difference if it were chance. */
  interface Lift {
    sessions: number;
    own: number | null;
    others: number | null;
    difference: Estimate;
    p: number | null;
  }

  /** Counts for a status line: memories in the project of the folder, in all, and of today. */
  interface LineCounts {
    known: number;
    today: number;
    all: number;
    queued: number;
    set_aside: number;
  }

  /** The work that wrote a line. `match`: whether it wrote the `line`, lines `near` it, or only the `file`; `total`: how many memories there are, of which `items` has the first. */
  interface LineHistory {
    file: string;
    line: number;
    text: string;
    match: string;
    total: number;
    items: any[];
  }

  /** A link that logs in one browser, once and within `seconds`. */
  interface Link {
    id: string;
    url: string;
    seconds: number;
  }

  /** The state of a link. `misused`: its code was used by someone else. */
  interface LinkState {
    state: "expired" | "misused" | "used" | "waiting";
  }

  /** A backup and its test restore, null if there was none. */
  interface ListedBackup {
    name: string;
    made_at: number;
    size: number;
    version: number | null;
    observations: number | null;
    problem?: string;
    drill?: Drill | null;
  }

  /** One entry of the log; `message` includes its traceback. */
  interface LogEntry {
    at: number;
    level: string;
    logger: string;
    message: string;
  }

  /** The last lines as text, and entries with their tracebacks, newest first. */
  interface LogPage {
    lines: string[];
    items: LogEntry[];
    hasMore: boolean;
  }

  /** How many memories have another state than before. */
  interface LookedAgain {
    changed: number;
  }

  /** A machine of the space. `here` and `there`: its entries in this database and at the transport. `until`: when it was removed or left. */
  interface Machine {
    device: string;
    name: string;
    own: boolean;
    here: number;
    there: number;
    since: number;
    until?: number | null;
  }

  /** The memory that was saved. `held`: why it needs approval. */
  interface MemorySaved {
    success: boolean;
    id: number;
    type: string;
    title: string;
    project: string;
    held: string;
  }

  /** How often an observation was shown and used, at which triggers, and whether it has left the start context. */
  interface MemoryUses {
    contradicted: number;
    left: boolean;
    shown: number;
    triggers: any[];
    used: number;
  }

  /** What was moved, or would move. */
  interface Merge {
    from: Project;
    into: Project;
    moves: Record<string, number>;
    dry_run: boolean;
  }

  /** The newest backup. */
  interface NewestBackup {
    name: string;
    made_at: number;
    size: number;
  }

  /** The exact start context of the next session. `room`: tokens that are left. */
  interface NextContext {
    project: ContextProject;
    text: string;
    tokens: number;
    room: number;
    told: ToldItem[];
    settings: ContextSettings;
    stored: ContextSettings;
    switch: Switch;
  }

  /** An event that a fact comes from, in one line. */
  interface ObservationEvent {
    at: number;
    failed: boolean;
    kind: string;
    seq: number;
    text: string;
    tool: string | null;
  }

  /** Where an observation comes from. `events_gone`: the events of its turn were purged. */
  interface ObservationOrigin {
    events: ObservationEvent[];
    events_gone: number;
    project_id: number;
    prompt: any | null;
    session: any | null;
    turn: any | null;
  }

  /** One observation with its origin and its history. `told`: it may be injected; `held`: why it may not be. */
  interface ObservationPage {
    observation: any;
    told: boolean;
    held: string;
    origin: ObservationOrigin;
    history: HistoryEntry[];
    validity: ValidityChange[];
    types: string[];
  }

  /** A name that a commit has removed since the line was written. `was`: where it was; `now`: what it is called now, if that is known; `subject`: of the commit. */
  interface OutdatedName {
    kind: string;
    name: string;
    was: string;
    now: string;
    commit: string;
    subject: string;
  }

  /** A line of an instruction file that no longer holds. `replacement` is what is proposed: null to delete it. */
  interface OutdatedStatement {
    file: string;
    line: number;
    text: string;
    problems: OutdatedName[];
    has_proposal: boolean;
    replacement: string | null;
  }

  /** A turn in the outline. */
  interface OutlineLine {
    number: number;
    opened_at: number;
    private: number;
    text: string | null;
  }

  /** A part of a list. `hasMore`: there are more after it. */
  interface PageOfLedgerLine {
    items: LedgerLine[];
    hasMore: boolean;
    offset: number;
    limit: number;
  }

  /** A part of a list. `hasMore`: there are more after it. */
  interface PageOfMemoryItem {
    items: any[];
    hasMore: boolean;
    offset: number;
    limit: number;
  }

  /** A part of a list. `hasMore`: there are more after it. */
  interface PageOfSessionDetails {
    items: SessionDetails[];
    hasMore: boolean;
    offset: number;
    limit: number;
  }

  /** A provider with failures: until when it is paused, and why. */
  interface PausedProvider {
    provider: string;
    failures: number;
    until: number;
    verdict: string;
    message: string;
  }

  /** The memories of a turn. */
  interface PreviewedDigest {
    title: string;
    subtitle: string;
    summary: Summary | null;
    observations: Draft[];
  }

  /** A request to a model; `tokens_at_most` with its longest possible reply. */
  interface PreviewedRequest {
    system: string;
    prompt: string;
    tokens_at_most: number;
  }

  /** Something that a person should know. `code` is the error's class, `machine` the name of the one concerned. */
  interface Problem {
    code: string;
    message: string;
    hint?: string;
    machine?: string;
    at?: number;
  }

  /** The worker's process. */
  interface ProcessState {
    version: string;
    installed_version: string | null;
    pid: number;
    started_at: number;
    uptime_ms: number;
    memory: number;
    listeners: number;
    data_dir: string;
  }

  /** What was noted. */
  interface ProcessingNoted {
    status: string;
    isProcessing: boolean;
  }

  /** A project as it is stored. */
  interface Project {
    id: number;
    name: string;
    root: string;
    created_at: number;
  }

  /** The project of a folder, null if it is not known yet, and the projects it may have to be merged with. */
  interface ProjectHere {
    id: number | null;
    related: RelatedProject[];
  }

  /** All projects. `here`: the project of the folder that was given. */
  interface ProjectList {
    items: ProjectSummary[];
    here: ProjectHere | null;
  }

  /** A project, and whether it is on. */
  interface ProjectPage {
    counts: Record<string, number>;
    first_at: number | null;
    last_at: number | null;
    agents: AgentSessions[];
    id: number;
    name: string;
    root: string;
    created_at: number;
    aliases: Alias[];
    folders: string[];
    open: string[];
    last_summary: any | null;
    related: RelatedProject[];
    switch: Switch;
  }

  /** A project with the number of its sessions and observations. */
  interface ProjectSummary {
    id: number;
    name: string;
    root: string;
    sessions: number;
    observations: number;
    last_event_at: number | null;
  }

  /** What would be injected, and the memories that were found. */
  interface PromptContext {
    context: string;
    count: number;
    items: any[];
  }

  /** The session and the number of the prompt, and why it was skipped. */
  interface PromptReceived {
    sessionDbId: number | null;
    promptNumber: number | null;
    skipped: boolean;
    reason: string | null;
    status: string;
  }

  /** What is waiting: files in the spool, jobs, and dead letters with their errors. */
  interface Queue {
    captured: number;
    stored: number;
    queued: number;
    set_aside: number;
    filtered: number;
    filtered_by: Record<string, number>;
    set_aside_by: Record<string, number>;
    faded: number;
    spool: number;
    waiting: number;
    jobs: QueuedJob[];
  }

  /** How many memories of one origin wait in a project, and why. */
  interface QueueSource {
    trust: string;
    project_id: number;
    project: string;
    count: number;
    why: string;
  }

  /** The number of jobs by state, and by kind. */
  interface QueueState {
    waiting: number;
    retrying: number;
    dead: number;
    running: number;
    kinds: JobKindCounts[];
  }

  /** Whether an event was queued or skipped, and why; the number of events that wait. */
  interface Queued {
    status: string;
    reason?: string;
    queueLength?: number;
  }

  /** A job as it is stored. */
  interface QueuedJob {
    id: number;
    kind: string;
    subject: string;
    due_at: number;
    attempts: number;
    dead: number;
    error: string | null;
    created_at: number;
  }

  /** An event with its content. */
  interface RawEvent {
    seq: number;
    turn_id: number | null;
    kind: string;
    at: number;
    tool_use_id: string | null;
    source: string;
    body: any;
  }

  /** Whether the worker takes requests: `ready` or `stopping`. */
  interface Readiness {
    status: string;
  }

  /** The maximum cost of refining turns, and the days it takes under the caps. */
  interface RefiningEstimate {
    turns: number;
    tokens: number;
    cost: number;
    model: string;
    daily_tokens: number;
    monthly_cost: number;
    days: number;
  }

  /** Providers, spending against the caps, and paused providers. */
  interface RefiningState {
    providers: string[];
    today_tokens: number;
    daily_tokens: number;
    month_cost: number;
    monthly_cost: number;
    waiting: number;
    paused: PausedProvider[];
    prices_problem: string;
    problem: string;
  }

  /** A project that may be the same one. `command` merges the two; "" if one is not known yet. */
  interface RelatedProject {
    id: number;
    name: string;
    root: string;
    same: string;
    command: string;
  }

  /** What an open page needs to log in by itself after a restart of the worker. */
  interface Renewal {
    id: string;
    key: string;
  }

  /** The credential of a page that has logged in by its renewal. */
  interface RenewedLogin {
    credential: string;
    proof: string;
  }

  /** Turns still to be digested again, and those for which that failed. */
  interface ReprocessProgress {
    left: number;
    failed: FailedTurn[];
  }

  /** The counts, and how many jobs were enqueued. */
  interface ReprocessQueued {
    rewritable: number;
    events_gone: number;
    a_persons: number;
    a_models: number;
    asked: number;
  }

  /** Response times in milliseconds, null without a measurement. */
  interface ResponseTimes {
    name: string;
    what: string;
    count: number;
    p50: number | null;
    p95: number | null;
    p99: number | null;
  }

  /** The number of jobs that are retried, or the id of the one. */
  interface Retried {
    retried: number;
  }

  /** A job that will be retried. */
  interface RetryingJob {
    id: number;
    kind: string;
    attempts: number;
    due_at: number;
    error: string;
  }

  /** Changed memories, each with its `successor` and when the change was seen, and how many there are of each kind. */
  interface ReviewPage {
    items: any[];
    counts: Record<string, number>;
    hasMore: boolean;
    offset: number;
    limit: number;
  }

  /** A job in progress, and the session and turn it is about. */
  interface RunningJob {
    kind: string;
    attempts: number;
    session_id: number | null;
    turn: number | null;
    title: string | null;
  }

  /** Progress of scrubbing: rows `changed` by table, and copies that were `kept` as they are, with the reason. */
  interface ScrubStatus {
    dry_run: boolean;
    started_at: number;
    ended_at: number | null;
    doing: string;
    done: number;
    total: number;
    changed: Record<string, number>;
    kept: string[];
    error: string;
    busy: boolean;
  }

  /** The results of all self-checks. */
  interface SelfChecks {
    at: number;
    ok: boolean;
    items: Finding[];
  }

  /** A whole session. Not a kind of `SessionDetails`, because `observations` are the observations here. */
  interface SessionContent {
    id: number;
    host: string;
    content_session_id: string;
    memory_session_id: string | null;
    project_id: number;
    project: string;
    first_prompt: string | null;
    prompt_counter: number;
    title: string | null;
    subtitle: string | null;
    status: string;
    started_at: number;
    last_event_at: number;
    ended_at: number | null;
    model_tokens: number;
    cost: number;
    turns: TurnRecord[];
    events: EventLine[];
    prompts: any[];
    observations: any[];
    summaries: any[];
  }

  /** A session with its counts. */
  interface SessionDetails {
    id: number;
    host: string;
    content_session_id: string;
    memory_session_id: string | null;
    project_id: number;
    project: string;
    first_prompt: string | null;
    prompt_counter: number;
    title: string | null;
    subtitle: string | null;
    status: string;
    started_at: number;
    last_event_at: number;
    ended_at: number | null;
    observations: number;
    model_tokens: number;
    cost: number;
  }

  /** The session that was marked as failed. `kept`: nothing of it is deleted. */
  interface SessionFailed {
    status: string;
    sessionDbId: number;
    kept: boolean;
  }

  /** A session on the timeline of its project. */
  interface SessionLane {
    id: number;
    host: string;
    title: string | null;
    status: string;
    start_at: number;
    end_at: number;
    turns: number;
    observations: number;
  }

  /** A session under the field names of older clients, and the number of its pending events and turns. */
  interface SessionStatus {
    id: number;
    host: string;
    content_session_id: string;
    memory_session_id: string | null;
    project_id: number;
    project: string;
    first_prompt: string | null;
    prompt_counter: number;
    title: string | null;
    subtitle: string | null;
    status: string;
    started_at: number;
    last_event_at: number;
    ended_at: number | null;
    observations: number;
    model_tokens: number;
    cost: number;
    sessionDbId: number;
    contentSessionId: string;
    memorySessionId: string | null;
    promptNumber: number;
    queueLength: number;
  }

  /** Events that were set aside: how many, where, and the newest. */
  interface SetAside {
    count: number;
    folder: string;
    newest: SetAsideFile[];
  }

  /** An event that was set aside. */
  interface SetAsideFile {
    name: string;
    at: number | null;
    size: number;
    reason: string;
  }

  /** One setting. `value` is written as in config.toml, `current` as JSON; a secret is only `set` or not. */
  interface Setting {
    value: string;
    current: any;
    set: boolean;
    reason: string;
    source: string;
    default: any;
    kind: string;
    low: number | null;
    high: number | null;
    choices: string[];
    problem: string;
    hint: string;
    fixed: string;
    waits: boolean;
  }

  /** The settings that changed, whether the worker restarts with them, and when it was started. */
  interface SettingsChanged {
    changed: string[];
    restarts: boolean;
    started_at: number;
  }

  /** The source that is no longer trusted. */
  interface SourceDistrusted {
    project_id: number;
    source: string;
  }

  /** The source that is trusted, and the number of memories that were approved. */
  interface SourceTrusted {
    project_id: number;
    source: string;
    approved: number;
  }

  /** A space as this machine sees it. `offline`: why the last attempt did not reach the transport. `busy`: an exchange is running, in `phase`, with the entries `done` of `total` so far by machine. */
  interface SpaceStatus {
    id: string;
    name: string;
    kind: string;
    transport: string;
    device: string;
    machine: string;
    epoch: number;
    projects: string[];
    created_at: number;
    attempted_at: number;
    exchanged_at: number;
    offline: string;
    machines: Machine[];
    problems: Problem[];
    notes: Problem[];
    conflicts: number;
    refused: Record<string, number>;
    busy: boolean;
    phase: string;
    done: Record<string, number>;
    total: Record<string, number>;
  }

  /** Row counts, sizes, and event counts by state. */
  interface Stats {
    worker: WorkerProcess;
    database: DatabaseCounts;
    events: EventAccount;
    index: IndexState;
  }

  /** A session and a page of its turns. The first page has an outline of all turns. */
  interface Story {
    session: StorySession;
    told_at_start: StoryInjection[];
    turns: StoryTurn[];
    from: number;
    limit: number;
    hasMore: boolean;
    outline?: OutlineLine[];
  }

  /** A commit that was made. */
  interface StoryCommit {
    id: string;
    subject: string;
    branch: string;
  }

  /** What a session has. `events_gone`: events that were purged. */
  interface StoryCounts {
    turns: number;
    private: number;
    events: number;
    observations: number;
    events_gone: number;
  }

  /** A command that failed, and where it passed again. */
  interface StoryFailure {
    command: string;
    error: string;
    at: number;
    fixed: FixPoint | null;
  }

  /** How often a file was edited and read; null if it is not known. */
  interface StoryFile {
    path: string;
    edited: number | null;
    read: number | null;
  }

  /** What was injected at one moment; `held_out`: what would have been, in a moment that stayed silent. */
  interface StoryInjection {
    id: number;
    moment: string;
    about: string;
    at: number;
    tokens: number;
    items: InjectedItem[];
    held_out?: boolean;
  }

  /** An observation of a turn. */
  interface StoryObservation {
    id: number;
    type: string;
    title: string | null;
    subtitle: string | null;
    trust: string;
    pinned: number;
    verdict: string;
    commit_id: string | null;
    tokens: number | null;
    created_at: number;
    superseded_by: number | null;
    validity?: string;
    work_outcome?: string;
  }

  /** The prompt of a turn. */
  interface StoryPrompt {
    id: number;
    text: string;
  }

  /** A session with its counts and what its requests to models cost. */
  interface StorySession {
    id: number;
    title: string | null;
    subtitle: string | null;
    host: string;
    content_session_id: string;
    status: string;
    cwd: string;
    started_at: number;
    last_event_at: number;
    ended_at: number | null;
    project_id: number;
    project: string;
    requests: number;
    model_tokens: number;
    cost: number;
    counts: StoryCounts;
  }

  /** The summary of a turn. `closing_held`: the origin of a closing message that is not injected. */
  interface StorySummary {
    id: number;
    request: string | null;
    investigated: string | null;
    learned: string | null;
    completed: string | null;
    next_steps: string | null;
    notes: string | null;
    closing: string;
    closing_trust: string;
    outcome: string;
    verdict: string;
    closing_held: string;
  }

  /** A turn. Of a private one nothing is shown but its times. */
  interface StoryTurn {
    id: number;
    number: number;
    opened_at: number;
    last_at: number;
    closed_at: number | null;
    closed_by: string | null;
    private: boolean;
    digested: boolean;
    told: StoryInjection[];
    prompt?: StoryPrompt | null;
    summary?: StorySummary | null;
    observations?: StoryObservation[];
    files?: StoryFile[];
    commits?: StoryCommit[];
    failures?: StoryFailure[];
    spent?: TurnUsage;
    events?: number;
    events_gone?: number;
    whole?: boolean;
  }

  /** The observation that superseded another. */
  interface Successor {
    created_at: number;
    id: number;
    narrative: string | null;
    title: string | null;
    type: string | null;
  }

  interface Summary {
    request?: string;
    investigated?: string;
    learned?: string;
    completed?: string;
    next_steps?: string;
    notes?: string;
    files_read?: string[];
    files_edited?: string[];
    closing?: string;
    closing_trust?: string;
    outcome?: string;
    trust?: string;
    why?: string;
  }

  /** Whether a project is on: not all of its folders are off. */
  interface Switch {
    on: boolean;
    off: DisabledFolder[];
    folders: number;
  }

  /** The settings that changed, and whether the project is on now. */
  interface Switched {
    changed: string[];
    restarts: boolean;
    started_at: number;
    switch: Switch;
  }

  /** The point that a timeline is about; without a kind, only a time. */
  interface TimelineAnchor {
    kind: string;
    id: number;
    at: number;
  }

  /** What happened around a point. */
  interface TimelinePage {
    items: any[];
    anchor: TimelineAnchor;
  }

  /** Whether the token was replaced. */
  interface TokenRotated {
    rotated: boolean;
  }

  /** An observation or summary in a start context. */
  interface ToldItem {
    kind: string;
    id: number;
    title: string | null;
    session_id?: number;
  }

  /** What was shown at one trigger, how much was used, and what it cost. */
  interface TriggerWorth {
    trigger: string;
    injections: number;
    shown: number;
    used: number;
    tokens: number;
  }

  /** An external source that the user trusts in a project. */
  interface TrustedSource {
    project_id: number;
    project: string;
    source: string;
    at: number;
  }

  /** The request for a turn, and the draft by rules. If the request was sent, also the reply and what it costs. `refined` is null if the reply cannot be used. */
  interface TurnPreview {
    turn: number;
    prompt: string;
    request: PreviewedRequest;
    local: PreviewedDigest;
    provider?: string;
    model?: string;
    verdict?: string;
    message?: string;
    answer?: string;
    usage?: UsageDetails;
    cost?: number;
    refined?: PreviewedDigest | null;
  }

  /** A turn as it is stored. */
  interface TurnRecord {
    id: number;
    number: number;
    private: number;
    opened_at: number;
    closed_at: number | null;
    closed_by: string | null;
    digested_at: number | null;
  }

  /** The requests to models about a turn. */
  interface TurnUsage {
    requests: number;
    tokens: number;
    cost: number;
  }

  /** The number of turns to refine. */
  interface TurnsQueued {
    turns: number;
  }

  /** A type of observations. */
  interface TypeFacet {
    name: string;
    icon: string;
  }

  /** The files that were read before and have not changed. */
  interface Unchanged {
    unchanged: string[];
  }

  /** What was undone, the observations concerned, and this one. */
  interface Undone {
    undone: string;
    ids: number[];
    observation: any;
  }

  /** Token counts as the provider reported them, and the cost in dollars if it did. */
  interface UsageDetails {
    input_tokens: number;
    cached_tokens: number;
    written_tokens: number;
    output_tokens: number;
    cost: number | null;
  }

  /** How many shown items were used in one way. An item can be used in several. */
  interface UseCount {
    use: string;
    items: number;
  }

  /** When an observation was first seen with a validity, and the title of the one that superseded it. */
  interface ValidityChange {
    at: number;
    commit_id: string;
    head: string;
    successor: string | null;
    superseded_by: number | null;
    validity: string;
  }

  /** The worker as it reports itself in the statistics. */
  interface WorkerProcess {
    version: string;
    uptime_ms: number;
    pid: number;
  }

  /** Version (and the installed one, which takes over within seconds), process, uptime, event counts by state. */
  interface WorkerStatus {
    captured: number;
    stored: number;
    queued: number;
    set_aside: number;
    filtered: number;
    filtered_by: Record<string, number>;
    set_aside_by: Record<string, number>;
    faded: number;
    status: string;
    version: string;
    installed_version: string | null;
    pid: number;
    started_at: number;
    uptime_ms: number;
    listeners: number;
    to_rewrite: number;
    audit: AuditState;
    door: string[];
  }

  /** What memory was worth in a period: what was shown, what was used, and what can be said about the effect. */
  interface Worth {
    sessions: number;
    sessions_shown: number;
    sessions_used: number;
    injections: number;
    tokens: number;
    shown: number;
    used: number;
    contradicted: number;
    warnings: number;
    followed: number;
    project: string;
    since: number;
    characters_read: number;
    characters_again: number;
    triggers: TriggerWorth[];
    uses: UseCount[];
    lift: Lift;
    holdout: HoldoutEffect;
  }

  /** The answer to GET of a path. */
  type Get<Path extends string> =
    Path extends "/api/audit/log" ? AuditLog :
    Path extends "/api/context/at" ? ContextAt :
    Path extends "/api/cost/days" ? DailyCost :
    Path extends "/api/health/page" ? HealthPage :
    Path extends "/api/observations/by-file" ? ItemsOfMemoryItem :
    Path extends "/api/review/instructions" ? InstructionReview :
    Path extends "/api/audit" ? SelfChecks :
    Path extends "/api/backfill" ? BackfillProgress :
    Path extends "/api/backup" ? ListedBackup[] :
    Path extends "/api/cost" ? CostReport :
    Path extends "/api/facets" ? Facets :
    Path extends "/api/feed" ? Feed :
    Path extends "/api/forget" ? DeletionProgress :
    Path extends "/api/health" ? WorkerStatus :
    Path extends "/api/index" ? IndexProgress :
    Path extends "/api/ledger" ? PageOfLedgerLine :
    Path extends "/api/line" ? LineCounts :
    Path extends "/api/logs" ? LogPage :
    Path extends "/api/now" ? Activity :
    Path extends "/api/observations" ? PageOfMemoryItem :
    Path extends "/api/projects" ? ProjectList :
    Path extends "/api/prompts" ? PageOfMemoryItem :
    Path extends "/api/quarantine" ? ApprovalQueue :
    Path extends "/api/queue" ? Queue :
    Path extends "/api/readiness" ? Readiness :
    Path extends "/api/renewal" ? Renewal :
    Path extends "/api/reprocess" ? ReprocessProgress :
    Path extends "/api/review" ? ReviewPage :
    Path extends "/api/scrub" ? ScrubStatus :
    Path extends "/api/search" ? PageOfMemoryItem :
    Path extends "/api/sessions" ? PageOfSessionDetails :
    Path extends "/api/settings" ? Record<string, Setting> :
    Path extends "/api/spaces" ? SpaceStatus[] :
    Path extends "/api/stats" ? Stats :
    Path extends "/api/summaries" ? PageOfMemoryItem :
    Path extends "/api/timeline" ? TimelinePage :
    Path extends "/api/trust" ? ItemsOfTrustedSource :
    Path extends "/api/why" ? LineHistory :
    Path extends "/api/worth" ? Worth :
    Path extends "/open/again" ? Challenge :
    Path extends `/api/observation/${string}/forget` ? DeletionOfOne :
    Path extends `/api/observation/${string}/history` ? ItemsOfHistoryEntry :
    Path extends `/api/observation/${string}/page` ? ObservationPage :
    Path extends `/api/observation/${string}/related` ? ItemsOfMemoryItem :
    Path extends `/api/project/${string}/context` ? NextContext :
    Path extends `/api/project/${string}/days` ? Days :
    Path extends `/api/project/${string}/files` ? Files :
    Path extends `/api/project/${string}/lanes` ? Lanes :
    Path extends `/api/session/${string}/events` ? EventsPage :
    Path extends `/api/session/${string}/story` ? Story :
    Path extends `/api/import/${string}` ? ImportStatus :
    Path extends `/api/observation/${string}` ? any :
    Path extends `/api/open/${string}` ? LinkState :
    Path extends `/api/project/${string}` ? ProjectPage :
    Path extends `/api/prompt/${string}` ? any :
    Path extends `/api/session/${string}` ? SessionContent :
    Path extends `/api/spaces/${string}` ? SpaceStatus :
    Path extends `/api/summary/${string}` ? any :
    Path extends `/sessions/${string}/status` ? SessionStatus :
    Path extends `/sessions/${string}` ? SessionStatus :
    any;

  /** The answer to POST of a path. */
  type Post<Path extends string> =
    Path extends "/api/backfill/look" ? Unchanged :
    Path extends "/api/backfill/refine" ? TurnsQueued | RefiningEstimate :
    Path extends "/api/backup/check" ? BackupCheck :
    Path extends "/api/context/semantic" ? PromptContext :
    Path extends "/api/forget/preview" ? DeletionPreview :
    Path extends "/api/memory/save" ? MemorySaved :
    Path extends "/api/observations/batch" ? ItemsOfMemoryItem :
    Path extends "/api/queue/retry" ? Retried :
    Path extends "/api/sessions/complete" ? Queued :
    Path extends "/api/sessions/init" ? PromptReceived :
    Path extends "/api/sessions/observations" ? Queued :
    Path extends "/api/sessions/summarize" ? Queued :
    Path extends "/api/token/rotate" ? TokenRotated :
    Path extends "/api/backfill" ? BackfillQueued :
    Path extends "/api/backup" ? BackupCopy :
    Path extends "/api/compress" ? TurnPreview :
    Path extends "/api/forget" ? DeletionProgress :
    Path extends "/api/import" ? ImportStarted :
    Path extends "/api/open" ? Link :
    Path extends "/api/processing" ? ProcessingNoted :
    Path extends "/api/quarantine" ? Judged :
    Path extends "/api/reindex" ? IndexProgress :
    Path extends "/api/reprocess" ? ReprocessQueued :
    Path extends "/api/review" ? LookedAgain :
    Path extends "/api/scrub" ? ScrubStatus :
    Path extends "/api/spaces" ? SpaceStatus :
    Path extends "/api/trust" ? SourceTrusted :
    Path extends "/open/again" ? RenewedLogin :
    Path extends "/open" ? Admission :
    Path extends `/api/forget/${string}/undo` ? DeletionUndone :
    Path extends `/api/observation/${string}/approve` ? any :
    Path extends `/api/observation/${string}/keep` ? any :
    Path extends `/api/observation/${string}/merge` ? any :
    Path extends `/api/observation/${string}/pin` ? any :
    Path extends `/api/observation/${string}/undo` ? Undone :
    Path extends `/api/observation/${string}/wrong` ? any :
    Path extends `/api/project/${string}/merge` ? Merge :
    Path extends `/api/project/${string}/off` ? Switched :
    Path extends `/api/project/${string}/on` ? Switched :
    Path extends `/api/queue/${string}/retry` ? Retried :
    Path extends `/api/spaces/${string}/joined` ? SpaceStatus :
    Path extends `/api/spaces/${string}/projects` ? SpaceStatus :
    Path extends `/api/spaces/${string}/revoke` ? SpaceStatus :
    Path extends `/api/spaces/${string}/rotate` ? SpaceStatus :
    Path extends `/api/spaces/${string}/sync` ? SpaceStatus :
    Path extends `/api/summary/${string}/approve` ? any :
    Path extends `/api/summary/${string}/wrong` ? any :
    Path extends `/sessions/${string}/init` ? PromptReceived :
    Path extends `/sessions/${string}/observations` ? Queued :
    Path extends `/sessions/${string}/summarize` ? Queued :
    any;

  /** The answer to PATCH of a path. */
  type Patch<Path extends string> =
    Path extends "/api/settings" ? SettingsChanged :
    Path extends `/api/observation/${string}` ? any :
    Path extends `/api/project/${string}` ? Project :
    any;

  /** The answer to DELETE of a path. */
  type Delete<Path extends string> =
    Path extends "/api/backfill" ? Cancelled :
    Path extends "/api/trust" ? SourceDistrusted :
    Path extends `/api/observation/${string}/keep` ? any :
    Path extends `/api/observation/${string}/pin` ? any :
    Path extends `/api/observation/${string}/wrong` ? any :
    Path extends `/api/summary/${string}/wrong` ? any :
    Path extends `/api/observation/${string}` ? Forgotten :
    Path extends `/api/queue/${string}` ? Dropped :
    Path extends `/api/spaces/${string}` ? Left :
    Path extends `/sessions/${string}` ? SessionFailed :
    any;

  /** The answer to a request with a body. */
  type Send<Method, Path extends string> =
    Method extends "POST" ? Post<Path> : Method extends "PATCH" ? Patch<Path> : Delete<Path>;
}
