// Types of the API's answers as the viewer uses them. Only fields that the viewer reads are listed.

/** Anything that `h()` accepts as a child. */
type Child = Node | string | number | false | null | undefined | Child[];

interface Route {
  path: string;
  query: URLSearchParams;
  name: string;
  id: number;
}

/** A message of the live stream. */
interface LiveEvent {
  type: string;
  kind?: string;
  id?: number;
  session_id?: number;
  turn_id?: number;
}

/** What the function `show` of a view returns. */
interface View {
  title: string;
  heading?: string;
  body: HTMLElement;
  /** The view is restored as it was left when the user goes back to it. */
  restorable?: boolean;
  failed?: boolean;
  onEvent?: (event: LiveEvent) => unknown;
  update?: (route: Route) => unknown;
  leave?: () => unknown;
}

interface Facets {
  types: { name: string; icon: string }[];
  concepts: string[];
  hosts: { name: string; title: string }[];
  projects: ProjectRow[];
}

interface ProjectRow {
  id: number;
  name: string;
  root: string;
  observations: number;
  sessions: number;
  last_event_at: number;
}

type Kind = "observation" | "summary" | "prompt" | "turn";

/** An observation, a summary or a prompt in a listing. */
interface Item {
  kind: Kind;
  id: number;
  type: string;
  title: string | null;
  subtitle: string | null;
  narrative: string | null;
  facts: string[];
  concepts: string[];
  snippet?: string;
  text?: string;
  request?: string;
  completed?: string;
  learned?: string;
  next_steps?: string;
  project: string;
  project_id: number;
  host: string;
  session_id: number | null;
  prompt_number: number | null;
  pinned: number;
  verdict: string;
  superseded_by: number | null;
  validity?: string;
  work_outcome?: string;
  work_commit?: string;
  moved_to?: string[];
  outcome?: string;
  files?: string[];
  files_edited?: string[];
  files_read: string[];
  files_modified: string[];
  created_at: number;
  why?: string;
  sources?: any[];
}

/** An observation under which something changed. */
interface ChangedItem extends Item {
  changed_at: number;
  head: string;
  successor: { id: number; title: string | null } | null;
}

interface Explanation {
  terms: string[];
  signals: string[];
  exact: number;
  words: number;
  meaning: number;
  confirmed: boolean;
}

interface SessionRow {
  id: number;
  title: string;
  subtitle: string;
  project: string;
  project_id: number;
  host: string;
  status: string;
  started_at: number;
  last_event_at: number;
  prompt_counter: number;
  observations: number;
  cost: number;
  model_tokens: number;
}

interface SessionHeader extends SessionRow {
  counts: { turns: number; observations: number; events: number };
  requests: number;
}

/** An item of an injection. `used` is null if its use is not known. */
interface InjectedItem {
  kind: string;
  id: number | null;
  type: string;
  title: string;
  path: string;
  used: boolean | null;
  how: string;
}

interface Injection {
  moment: string;
  about: string;
  tokens: number;
  items: InjectedItem[];
}

interface Failure {
  command: string;
  error: string;
  fixed: { turn: number } | null;
}

interface Summary {
  verdict: string;
  outcome: string;
  closing: string;
  closing_held: string;
  completed?: string;
  investigated?: string;
  learned?: string;
  next_steps?: string;
  notes?: string;
}

interface Turn {
  id: number;
  number: number;
  private: boolean;
  opened_at: number;
  closed_at: number | null;
  closed_by: string;
  last_at: number;
  digested: boolean;
  prompt: { text: string } | null;
  summary: Summary | null;
  observations: Item[];
  failures: Failure[];
  commits: { id: string; subject: string }[];
  files: { path: string; edited: number | null; read: number | null }[];
  told: Injection[];
  events: number;
  events_gone: number;
  whole: boolean;
  spent: { requests: number; cost: number; tokens: number };
}

interface StoryPage {
  session: SessionHeader;
  told_at_start: Injection[];
  outline: { number: number; text: string; private: boolean }[];
  from: number;
  turns: Turn[];
  hasMore: boolean;
}

interface HistoryEntry {
  what: string;
  by: string;
  at: number;
  undone: boolean;
  undo: boolean;
  before: Record<string, any> | null;
}

interface ObservationPage {
  observation: Item & {
    forgotten: boolean;
    undo_until: number | null;
    into_id: number | null;
    model: string;
    provider: string;
    trust: string;
    commit_id: string;
    updated_at: number;
    tokens: number;
    sources: number[][];
    validity: string;
  };
  origin: {
    session: { id: number; title: string } | null;
    turn: { number: number } | null;
    prompt: { text: string } | null;
    events: { seq: number; tool: string | null; kind: string; failed: boolean; text: string }[];
    events_gone: number;
  };
  history: HistoryEntry[];
  validity: {
    at: number;
    validity: string;
    superseded_by: number | null;
    head: string;
    commit_id: string;
    successor: string | null;
  }[];
  types: string[];
  told: boolean;
  held: string;
}

interface Setting {
  value: string;
  current: any;
  set: boolean;
  reason: string;
  source: "default" | "file" | "environment";
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

interface LogEntry {
  at: number;
  level: string;
  logger: string;
  message: string;
}

interface NowPage {
  sessions: {
    id: number;
    title: string;
    project: string;
    project_id: number;
    host: string;
    open: boolean;
    turn: number;
    last_event: { tool: string | null } | null;
    last_event_at: number;
  }[];
  working: { kind: string; session_id: number | null; title: string; turn: number | null }[];
  queue: { waiting: number; running: number; retrying: number; dead: number };
  spool: number;
  set_aside: number;
  backfill: { done: number; files: number; digesting: number } | null;
}

interface Job {
  id: number;
  about: string;
  session_id: number | null;
  dead: boolean;
  error: string;
  attempts: number;
  created_at: number;
  dropping: string;
}
