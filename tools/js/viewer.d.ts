// Types that the viewer uses. Those of the API's answers are in api.d.ts; memories are listed here with the fields that
// the viewer reads, because which they have depends on their kind.

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

type Facets = Api.Facets;

type ProjectRow = Api.ProjectSummary;

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

/** The hits of a file or a session, the best ones in full. */
interface HitGroup {
  group: string;
  key: string;
  project: string;
  count: number;
  items: (Item & { explain: Explanation })[];
}

type SessionRow = Api.SessionDetails;

type SessionHeader = Api.StorySession;

type InjectedItem = Api.InjectedItem;

type Injection = Api.StoryInjection;

type Failure = Api.StoryFailure;

type Summary = Api.StorySummary;

/** A turn that is not private: a private one has only its times. */
type Turn = Required<Api.StoryTurn>;

type StoryPage = Omit<Api.Story, "turns"> & { turns: Turn[] };

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

type Setting = Api.Setting;

type LogEntry = Api.LogEntry;

type NowPage = Api.Activity;

type Job = Api.DescribedJob;
