// The minimap above the timeline of the Perfetto UI v52: for how much of each stretch of time a process has slices.

const NUMBER = 0, TIME = 0n; // types of columns, as the UI writes them
const PRIORITY = 2; // the UI's own provider has 1
const LOOK_EVERY_MS = 200; // at the number of requests that the engine has not answered

/**
 * Fill the minimap of a trace once the UI has drawn its tracks: its sums take a second for 8 million slices. The UI's own
 * sum over the slices of all depths takes five, and shows a long slice only where it begins.
 * @param {PerfettoTrace} trace
 * @param {() => Promise<number[]>} ordered the processes to show, by their number in the engine
 */
export function showBusyTime(trace, ordered) {
  trace.minimap.registerContentProvider({
    priority: PRIORITY,
    /**
     * Return a list at once, and fill it later: the UI loads no track before it has the list.
     * @param {any} span the time to show
     * @param {bigint} width that of a stretch, in ns
     */
    getData: async (span, width) => {
      /** @type {ReturnType<typeof stretchesOf>[]} */
      const rows = [];
      const fill = async () => {
        await tracksDrawn(trace);
        const loads = await loadsOf(trace.engine, span.toTimeSpan().start, width);
        const shown = (await ordered()).map((process) => loads.get(process) ?? []);
        rows.push(...shown.filter((stretches) => stretches.length));
        trace.raf.scheduleFullRedraw();
      };
      fill().catch((error) => console.error('The minimap is empty:', error));
      return rows;
    },
  });
}

/**
 * Wait until the trace is ready and the engine has answered what the UI asked for its tracks.
 * @param {PerfettoTrace} trace
 * @returns {Promise<void>}
 */
const tracksDrawn = (trace) =>
  new Promise((resolve) => {
    const check = () => {
      if (trace.engine.numRequestsPending) setTimeout(check, LOOK_EVERY_MS);
      else resolve();
    };
    trace.onTraceReady.addListener(() => setTimeout(check, LOOK_EVERY_MS));
  });

/**
 * Return, by process, the stretches in which it has slices, in order, and the share of each that these take; more than 1
 * if several threads have some.
 * @param {PerfettoEngine} engine
 * @param {bigint} start
 * @param {bigint} width
 */
async function loadsOf(engine, start, width) {
  /** @type {Map<number, Map<bigint, bigint>>} */
  const busy = new Map();
  /**
   * @param {number} process
   * @param {bigint} stretch
   * @param {bigint} ns
   */
  const add = (process, stretch, ns) => {
    const sums = busy.get(process) ?? new Map();
    sums.set(stretch, (sums.get(stretch) ?? 0n) + ns);
    busy.set(process, sums);
  };
  const short = await engine.query(`
    SELECT upid, stretch, sum(ns) AS ns
    FROM (
      SELECT track_id, (ts - ${start}) / ${width} AS stretch, sum(dur) AS ns
      FROM slice WHERE depth = 0 AND dur < ${width} GROUP BY track_id, stretch
    ) JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)
    WHERE upid IS NOT NULL GROUP BY upid, stretch`);
  for (const row = short.iter({ upid: NUMBER, stretch: TIME, ns: TIME }); row.valid(); row.next()) {
    add(row.upid, row.stretch, row.ns);
  }
  const long = await engine.query(`
    SELECT upid, ts, dur
    FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)
    WHERE depth = 0 AND dur >= ${width} AND upid IS NOT NULL`);
  for (const row = long.iter({ upid: NUMBER, ts: TIME, dur: TIME }); row.valid(); row.next()) {
    for (const [stretch, ns] of parts(row.ts - start, row.ts + row.dur - start, width)) add(row.upid, stretch, ns);
  }
  return new Map([...busy].map(([process, sums]) => [process, stretchesOf(sums, start, width)]));
}

/**
 * Yield each stretch of a slice, and the time that the slice takes of it.
 * @param {bigint} from
 * @param {bigint} end
 * @param {bigint} width
 * @returns {Iterable<[bigint, bigint]>}
 */
function* parts(from, end, width) {
  while (from < end) {
    const stretch = from / width;
    const next = (stretch + 1n) * width;
    const until = next < end ? next : end;
    yield [stretch, until - from];
    from = until;
  }
}

/**
 * @param {Map<bigint, bigint>} sums
 * @param {bigint} start
 * @param {bigint} width
 */
const stretchesOf = (sums, start, width) =>
  [...sums]
    .map(([stretch, ns]) => ({ ts: start + stretch * width, dur: width, load: Number(ns) / Number(width) }))
    .sort((a, b) => (a.ts < b.ts ? -1 : 1));
