// Types for the check of the pages' scripts: what the API answers, as far as the pages read it, and the elements of the
// templates. No browser loads this file.

/** An integer as JSON has it; beyond 2^53 it is a bigint (exact.js). */
type Int = number | bigint;

type Child = Node | string | number | bigint | null | undefined;
type Children = Child | Child[];

interface ProblemFields {
  title?: string;
  detail?: string;
  code?: string;
  offset?: Int | null;
  message?: string;
  line?: number;
  column?: number;
}

interface Span {
  start_ns: Int;
  end_ns: Int;
}

interface TimeWindow {
  start_ns?: Int | null;
  end_ns?: Int | null;
  relative?: boolean;
  from?: string | null;
  to?: string | null;
}

interface Criteria {
  ranks?: Int[];
  steps?: Int[];
  devices?: Int[];
  streams?: string[];
  threads?: string[];
  processes?: string[];
  categories?: string[];
  names?: string[];
  phases?: string[];
  window?: TimeWindow;
  min_dur_ns?: Int;
}

interface TraceSelection extends Criteria {
  straddle?: string;
  closure?: Record<string, boolean>;
  exclude?: Criteria;
}

interface Step extends Span {
  number: Int;
  name: string;
}

interface Device {
  id: Int | string;
  name: string | null;
  memory_bytes: Int | null;
  events: Int | null;
}

interface Process {
  pid: Int | string;
  name: string | null;
  labels: string | null;
  events: Int;
}

interface Thread {
  pid: Int | string;
  tid: Int | string;
  name: string | null;
  events: Int;
}

interface MergedInput {
  kind: string;
  name: string;
  shift_ns: Int;
  base_ns: Int | null;
}

interface MergedRank {
  rank: Int;
  name: string;
  shift_ns: Int | null;
  collectives: Int;
  residual_ns: Record<string, Int> | null;
  base_ns: Int | null;
  beside?: MergedInput[];
}

interface HealthNote {
  kind: string;
  code: string;
  detail: string;
  count: Int;
  examples: { offset: Int | null; text: string | null }[];
}

interface Health {
  refused: Int;
  repaired: Int;
  notes: HealthNote[];
}

interface Progress {
  bytes: Int;
  bytes_total: Int | null;
  events: Int;
}

/** A trace as lists have it. */
interface TraceSummary {
  id: string;
  name: string;
  state: string;
  error: ProblemFields | null;
  health: Health;
  progress: Progress;
  size: Int;
  rank: Int | null;
  world_size: Int | null;
  parent: string | null;
  group: { id: string; name: string } | null;
  events: { in: Int; kept: Int; refused: Int };
  steps_count: Int;
  bounds: Span | null;
  created_at: string;
  selection: TraceSelection | null;
}

interface Trace extends TraceSummary {
  job: string | null;
  sha256: string | null;
  has_original: boolean;
  sources: Source[];
  format: string | null;
  host: string | null;
  path: string | null;
  backend: string | null;
  base_ns: Int | null;
  pinned: boolean;
  counts: Record<string, Int>;
  steps: Step[];
  streams: string[];
  devices: Device[];
  processes: Process[];
  threads: Thread[];
  ranks: MergedRank[];
}

/** A trace with what its page adds: the trace that it was cut from, and the time left of its ingest. */
interface ShownTrace extends Trace {
  parent_trace: Trace | null;
  left?: string;
}

interface Cycle {
  cycle: Int;
  ranks: Int[];
  missing: Int[];
  first_step: Int | null;
  last_step: Int | null;
}

interface GroupRank {
  trace: string;
  name: string;
  state: string;
  rank: Int | null;
  cycle: Int | null;
  kind: string | null;
  host: string | null;
  events: Int;
  size: Int;
}

interface Group {
  id: string;
  name: string;
  traces: Int;
  size: Int;
  world_size: Int | null;
  cycles: Cycle[];
  cycles_by: string;
  missing: Int[];
  run_id: string | null;
  created_at: string;
  ranks: GroupRank[];
}

/** A run or a single trace, as the library lists it. */
interface LibraryEntry {
  run: { id: string; name: string; run_id: string | null } | null;
  trace: { id: string; parent: string | null; rank: Int | null; world_size: Int | null; merged: Int; error: ProblemFields | null } | null;
  name: string;
  uploaded_at: string;
  size: Int;
  span_ns: Int | null;
  events: Int | null;
  steps: Int | null;
  traces: Int;
  matching: Int;
  ranks: Int;
  world_size: Int | null;
  backend: string | null;
  gpus: string[];
  has_gpu_work: boolean;
  states: Partial<Record<"queued" | "ingesting" | "ready" | "failed", Int>>;
  pinned: Int;
  damaged: Int;
  incomplete: Int;
  repaired: Int;
  refused: Int;
  progress: Progress;
}

interface LibraryPage {
  entries: LibraryEntry[];
  total: Int;
  traces: Int;
  stored: Int;
}

interface Job {
  id: string;
  state: string;
  progress: Progress & { events_total: Int | null };
  eta_s: number | null;
  error: ProblemFields | null;
  result: { traces: string[] };
}

/** How far the ingests of a dataset are. */
interface Ingesting {
  sources: Int | null;
  done: Int;
  failed: Int;
  bytes_done: Int;
  bytes_total: Int | null;
  bytes_per_s: number | null;
  left_s: number | null;
  reason: string | null;
  last_record_at: string | null;
}

interface DatasetInBrief {
  name: string;
  location: string;
  state: string;
  reason: string | null;
  read_at: string | null;
  unread: Int;
  runs_count: Int;
  ranks: Int;
  progress: Ingesting;
}

interface DatasetRun {
  name: string;
  done: Int;
  failed: Int;
  ranks: Int;
  world_size: Int | null;
  size: Int;
  events: Int;
  last_record_at: string;
}

interface DatasetIngest {
  id: string;
  state: string;
  host: string;
  process: Int;
  started_at: string;
  beat_at: string;
  sources: Int;
  done: Int;
  failed: Int;
  bytes_done: Int;
  bytes_total: Int;
  reason: string | null;
}

interface DatasetFailure {
  run: string;
  source: string;
  attempts: Int;
  worker: string;
  error: ProblemFields;
}

interface Dataset extends DatasetInBrief {
  runs: DatasetRun[];
  ingests: DatasetIngest[];
  failures: DatasetFailure[];
  next: string | null;
}

interface ColumnsTable {
  columns: Column[];
  values: Value[][];
  total: Int;
}

interface FleetAnswerFacts {
  question: string;
  parameters: Record<string, Value>;
  definition: string;
  source: string | null;
}

interface FleetAnswer extends FleetAnswerFacts {
  tables: Record<string, Table & { truncated: boolean; total: Int }>;
}

interface FleetAnswerInColumns extends FleetAnswerFacts {
  tables: Record<string, ColumnsTable>;
}

interface ImportJob extends Job {
  request: { path: string };
  result: { traces: string[]; skipped?: Int; files?: { path: string; trace: string | null; why: string | null }[] };
}

/** A job of any kind, as the page of jobs lists it. */
interface ListedJob extends Job {
  kind: string;
  trace: string | null;
  trace_name: string | null;
  request: { path?: string; traces?: string[] };
  ended_at: string | null;
}

interface EngineNote {
  code: string;
  count: Int;
  detail: string;
}

interface EngineStat {
  name: string;
  value: Int;
  severity: string;
  detail: string | null;
}

interface Shown {
  expected: Int;
  engine: Int;
}

interface Account {
  complete: boolean;
  lanes: Int;
  base_ns: Int;
  events: Int;
  shown: Int;
  slices: Shown;
  flows: Shown;
  counters: Shown;
  notes: EngineNote[];
  stats: EngineStat[];
}

/** What an engine loads of a trace. */
type Source = "columns" | "original";

type EngineKey = { args: string; source: Source; selection: TraceSelection | null };

interface Session extends EngineKey {
  trace: string;
  state: string;
  engine: { rss_bytes: Int | null; peak_bytes: Int | null; predicted_bytes: Int; restarts: Int };
  progress: { bytes: Int; events_total: Int | null };
  load_s: number | null;
  clients: Int;
  queries: Int;
  waiting: Int;
  error: ProblemFields | null;
  account: Account | null;
  account_reason: string | null;
  stats: EngineStat[] | null;
}

interface ListenerStatus {
  enabled: boolean;
  host: string;
  port: Int;
  trace: string | null;
  error: string | null;
}

interface Attachment {
  id: string;
  name: string;
  kind: string;
  trace: string | null;
  group: string | null;
  rank: Int | null;
  size: Int;
}

interface AttachmentMatch {
  trace: string;
  used: boolean;
  joined: Int | null;
  same_name: Int | null;
  gained: Int | null;
  reason: string | null;
}

interface AttachmentTables {
  tables: { name: string; columns: { name: string; unit: string | null; is_number: boolean }[]; rows: string[][] }[];
  text: string;
  truncated: boolean;
  reason: string | null;
}

interface Column {
  name: string;
  type: string;
  unit?: string | null;
  description?: string;
}

type Value = string | number | bigint | boolean | null;

interface Table {
  columns: Column[];
  rows: Value[][];
}

interface QueryResult extends Table {
  truncated: boolean;
  elapsed_ms: number;
}

interface ParameterSchema {
  description?: string;
  default?: Value;
  type?: string;
  enum?: string[];
  anyOf?: ParameterSchema[];
}

interface Analysis {
  name: string;
  answers: string;
  applies: boolean;
  reason: string | null;
  parameters: Record<string, ParameterSchema>;
}

interface SkippedTrace {
  rank: Int | null;
  name: string;
  reason: string;
}

interface AnalysisAnswer {
  skipped: SkippedTrace[];
  analysis: string;
  definition: string;
  source: string;
  notes: string[];
  elapsed_ms: number;
  tables: Record<string, Table>;
}

/** The Perfetto UI, which publishes no types. */
type PerfettoApp = any;
type PerfettoTrace = any;
type PerfettoEngine = any;
type PerfettoNode = any;

interface Window {
  app?: PerfettoApp;
}

/** Elements of the templates that are more than an HTMLElement, by id. */
interface ElementsById {
  contents: HTMLDetailsElement;
  files: HTMLDetailsElement;
  "overview-lanes": HTMLDetailsElement;
  "analysis-part": HTMLSelectElement;
  "compare-base": HTMLInputElement;
  "compare-base-cycle": HTMLSelectElement;
  "compare-base-steps": HTMLSelectElement;
  "compare-by": HTMLSelectElement;
  "compare-ms": HTMLInputElement;
  "compare-other": HTMLInputElement;
  "compare-other-cycle": HTMLSelectElement;
  "compare-other-steps": HTMLSelectElement;
  "compare-pct": HTMLInputElement;
  "compare-swap": HTMLButtonElement;
  "compare-with": HTMLAnchorElement;
  confirm: HTMLDialogElement;
  "confirm-no": HTMLButtonElement;
  "confirm-yes": HTMLButtonElement;
  "cut-by": HTMLSelectElement;
  cycle: HTMLSelectElement;
  "cut-download": HTMLAnchorElement;
  "cut-download-pftrace": HTMLAnchorElement;
  "cut-open": HTMLAnchorElement;
  "drift-base": HTMLSelectElement;
  "engine-args": HTMLSelectElement;
  "file-input": HTMLInputElement;
  "chosen-compare": HTMLAnchorElement;
  "filter-damaged": HTMLInputElement;
  "filter-gpu": HTMLSelectElement;
  "filter-kind": HTMLSelectElement;
  "filter-pinned": HTMLInputElement;
  "filter-state": HTMLSelectElement;
  "folder-input": HTMLInputElement;
  "grid-csv": HTMLAnchorElement;
  "grid-order": HTMLSelectElement;
  "grid-shade": HTMLSelectElement;
  "grid-value": HTMLSelectElement;
  "import-group": HTMLInputElement;
  "import-mode": HTMLSelectElement;
  "import-path": HTMLInputElement;
  "import-watch": HTMLInputElement;
  "login-next": HTMLInputElement;
  "merge-align": HTMLSelectElement;
  "merge-run": HTMLButtonElement;
  "name-run": HTMLDialogElement;
  "name-run-name": HTMLInputElement;
  next: HTMLButtonElement;
  previous: HTMLButtonElement;
  report: HTMLAnchorElement;
  search: HTMLInputElement;
  "sort-by": HTMLSelectElement;
  "run-measure": HTMLSelectElement;
  "sql-args": HTMLSelectElement;
  "overview-canvas": HTMLCanvasElement;
  "overview-download": HTMLAnchorElement;
  "overview-perfetto": HTMLAnchorElement;
  "overview-sql": HTMLAnchorElement;
  "sql-cancel": HTMLButtonElement;
  "sql-input": HTMLTextAreaElement;
  "sql-limit": HTMLSelectElement;
  "sql-save-name": HTMLInputElement;
  "sql-source": HTMLSelectElement;
  "trace-link": HTMLAnchorElement;
}

type ElementById<Id extends string> = Id extends keyof ElementsById
  ? ElementsById[Id]
  : Id extends `cut-${string}`
    ? HTMLInputElement
    : HTMLElement;
