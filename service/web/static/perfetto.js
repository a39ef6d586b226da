// Runs before the Perfetto UI's own script, on the page /perfetto/{view}/ that serves our copy of the UI. A view is the
// id of a trace, optionally followed by a ~ and its selection, arguments and source: JSON in base64url.
// The UI knows one engine, at 127.0.0.1:9001. This script redirects those requests to the trace's engine on our origin,
// waits until the engine has loaded the trace, and makes the UI open it, without a dialog and without another port.
'use strict';

(() => {
  const view = location.pathname.split('/').filter(Boolean).at(-1) ?? '';
  const [trace, code] = view.split('~');
  const root = `${location.origin}/perfetto/${view}/rpc`;

  /**
   * Decode base64url to text.
   * @param {string} base64url
   */
  const textOf = (base64url) => {
    const bytes = atob(base64url.replaceAll('-', '+').replaceAll('_', '/'));
    return new TextDecoder().decode(Uint8Array.from(bytes, (sign) => sign.charCodeAt(0)));
  };
  // The server writes the keys in this order. The selection stays text: its times exceed the numbers of JSON.parse.
  const [, args = 'all', selection = '', chosenSource = ''] =
    /^{(?:"args":"(\w+)",?)?(?:"selection":(.*?),?)?(?:"source":"(\w+)")?}$/.exec(code ? textOf(code) : '{}') ?? [];

  // At an address without a page, the UI requests a trace that only the server of its makers has.
  const address = location.href; // the UI changes it later
  const namesPage = () => /^#!\/\w/.test(location.hash);
  const viewer = () => `#!/viewer${/\?.*/s.exec(location.hash)?.[0] ?? ''}`;
  if (!namesPage()) history.replaceState(history.state, '', viewer());
  window.addEventListener('hashchange', (event) => {
    if (namesPage()) return;
    event.stopImmediatePropagation(); // the UI's own listener comes later
    location.replace(viewer());
  });

  /** @param {URL} url */
  const isEngine = (url) => ['127.0.0.1', 'localhost'].includes(url.hostname) && url.port === '9001';

  /** @param {string | URL} address */
  const redirect = (address) => {
    const url = new URL(address, location.href);
    if (!isEngine(url)) return address;
    const target = new URL(root + url.pathname);
    if (url.protocol.startsWith('ws')) target.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    return target.href;
  };

  // The UI waits two seconds for the status of its engine, and then starts an engine of its own, which has no trace. A
  // busy server may take longer. So once the engine is ready, the UI gets the status that this script has.
  const STATUS = `${root}/status`;
  /** @type {Response | null} */
  let engineStatus = null;

  const fetchAnywhere = window.fetch;
  window.fetch = async (resource, options) => {
    if (typeof resource !== 'string' && !(resource instanceof URL)) return fetchAnywhere(resource, options);
    const address = redirect(resource);
    return address === STATUS && engineStatus ? engineStatus.clone() : fetchAnywhere(address, options);
  };

  // The UI reports a lost engine not at all, or with a form that files a bug with its makers. So this script reports
  // the end of the connection, and hides it from the UI.
  window.WebSocket = class extends window.WebSocket {
    wanted = false;

    /**
     * @param {string | URL} address
     * @param {string | string[]} [protocols]
     */
    constructor(address, protocols) {
      const redirected = redirect(address);
      super(redirected, protocols);
      if (redirected === address) return;
      this.addEventListener('error', (event) => event.stopImmediatePropagation());
      this.addEventListener('close', (event) => {
        event.stopImmediatePropagation();
        if (!this.wanted) showBroken(event.reason || 'The connection to the server is lost.', UNTIL_RELOADED);
      });
    }

    /**
     * @param {number} [code]
     * @param {string} [reason]
     */
    close(code, reason) {
      this.wanted = true;
      super.close(code, reason);
    }
  };

  // The UI loads its files from next to its page. All views share one copy, which browsers keep with its compiled code.
  /** @param {URL} url */
  const addressOfFile = (url) => {
    const folder = `/perfetto/${view}/`;
    return url.pathname.startsWith(folder) ? url.pathname.replace(folder, '/perfetto/files/') : url.href;
  };

  // The UI loads a script from a host of its makers to recognise their staff. No request may leave our origin.
  const source = /** @type {PropertyDescriptor & { set: (this: HTMLScriptElement, address: string) => void }} */ (
    Object.getOwnPropertyDescriptor(HTMLScriptElement.prototype, 'src')
  );
  Object.defineProperty(HTMLScriptElement.prototype, 'src', {
    ...source,
    /**
     * @this {HTMLScriptElement}
     * @param {string} address
     */
    set(address) {
      const url = new URL(address, location.href);
      if (url.origin === location.origin) source.set.call(this, addressOfFile(url));
      else queueMicrotask(() => this.dispatchEvent(new Event('error')));
    },
  });

  // The UI starts its own engine ahead, which takes a second of a core. It is needed only for a file that is opened later.
  const Worker = window.Worker;

  class WorkerOnUse {
    /** @param {string} address */
    constructor(address) {
      this.address = address;
      /** @type {Worker | null} */
      this.worker = null;
    }

    /**
     * @param {any} message
     * @param {Transferable[]} transferred
     */
    postMessage(message, transferred) {
      this.worker ??= new Worker(this.address);
      this.worker.postMessage(message, transferred);
    }

    terminate() {
      this.worker?.terminate();
    }
  }

  window.Worker = /** @type {any} */ (function (/** @type {string} */ address, /** @type {WorkerOptions} */ options) {
    return String(address).endsWith('/engine_bundle.js') ? new WorkerOnUse(address) : new Worker(address, options);
  });

  // The UI would register a worker that caches one version of itself for the whole origin.
  if (navigator.serviceWorker) {
    navigator.serviceWorker.register = () => Promise.reject(new Error('This copy of the UI uses no service worker.'));
  }

  // The column of names is wider than the UI's 250 px. The UI reads its width once, when it starts, so a module would be
  // too late for a UI that the browser has cached. The end of a longer name is truncated; the UI shows it on hover.
  document.documentElement.style.setProperty('--track-shell-width', '330px');
  const titleStyle = document.createElement('style');
  titleStyle.textContent = `
    .pf-track__title.pf-middle-ellipsis { display: block; white-space: nowrap; text-overflow: ellipsis; }
    .pf-track__title.pf-middle-ellipsis > span { overflow: visible; }`;
  document.head.append(titleStyle);

  const notice = document.createElement('div');
  notice.dataset.testid = 'perfetto-notice';
  notice.style.cssText =
    'position:fixed;inset:auto 0 0 0;z-index:10000;padding:10px 16px;display:flex;flex-wrap:wrap;gap:4px 16px;' +
    'align-items:center;font:14px/1.45 system-ui,sans-serif;background:#1f2a37;color:#fff;overflow-wrap:anywhere';

  /**
   * Show a line at the foot of the page; an empty text removes it.
   * @param {string} text
   * @param {string} role
   * @param {...Node} more
   */
  const showNotice = (text, role = 'status', ...more) => {
    notice.setAttribute('role', role);
    notice.replaceChildren(text, ...more);
    if (!text) notice.remove();
    else if (!notice.isConnected) document.documentElement.append(notice);
  };

  const BUTTON =
    'padding:3px 12px;font:inherit;color:#fff;background:#0b5cad;border:1px solid #9cc8f5;border-radius:5px;cursor:pointer';

  /**
   * Show an error that only a reload of the page mends.
   * @param {string} text
   * @param {string} then
   */
  const showBroken = (text, then = '') => {
    const reload = document.createElement('button');
    reload.type = 'button';
    reload.textContent = 'Reload';
    reload.style.cssText = BUTTON;
    reload.addEventListener('click', () => location.reload());
    showNotice(`${then}${text}`, 'alert', reload);
  };

  /**
   * Show a text with a button that removes it.
   * @param {string} text
   * @param {string} role
   * @param {...Node} more
   */
  const showUntilClosed = (text, role, ...more) => {
    const close = document.createElement('button');
    close.type = 'button';
    close.textContent = 'Close';
    close.style.cssText = BUTTON;
    close.addEventListener('click', () => showNotice(''));
    showNotice(text, role, ...more, close);
  };

  const UNTIL_RELOADED = 'The trace is out of reach until this page is reloaded. ';

  /** @param {number} bytes */
  const megabytes = (bytes) => (bytes / 1e6).toFixed(0);

  /**
   * Send a request to our server. Throws an Error with the reason of a refusal.
   * @param {string} path
   * @param {RequestInit} [options]
   */
  async function request(path, options) {
    let response;
    try {
      response = await fetchAnywhere(path, options);
    } catch {
      throw new Error('The server does not answer.');
    }
    if (response.ok) return response;
    const refusal = await response.json();
    throw new Error(`${refusal.title}. ${refusal.detail}`);
  }

  /**
   * Send a request about the trace to our API, and return its status and answer. Throws as `request` does.
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<[number, any]>}
   */
  async function ask(path, options) {
    const response = await request(`/api/v1/traces/${trace}${path}`, options);
    return [response.status, await response.json()];
  }

  /** Wait until the engine has loaded the trace, and return whether that is its original. */
  async function engineReady() {
    const chosen = new URLSearchParams({wait: '1', args, ...(selection && {selection}), ...(chosenSource && {source: chosenSource})});
    for (;;) {
      const [status, session] = await ask(`/session?${chosen}`, {method: 'POST'});
      if (status === 200) {
        engineStatus = await request(STATUS, {method: 'POST'});
        return session.source === 'original';
      }
      if (session.state === 'waiting') showNotice('The engine waits until others have ended.');
      else showNotice(`The engine is loading the trace: ${megabytes(session.progress.bytes)} MB so far.`);
    }
  }

  // The UI sends no event when it has started. It creates its `app` first, and activates its plugins once its style sheet
  // is loaded. A trace that is opened before that has no tracks.
  /** @returns {Promise<PerfettoApp>} */
  const uiReady = () =>
    new Promise((resolve) => {
      const check = () => {
        const {app} = window;
        if (app?.openTraceFromHttpRpc && app.plugins?.orderedPlugins?.length !== 0) resolve(app);
        else setTimeout(check, 50);
      };
      check();
    });

  // The UI's plugins for Android and for the Linux kernel find nothing in a profiler's trace, but ask much of its engine.
  const OTHER_SYSTEMS = /^(com\.android|com\.google|org\.kernel)\./;

  /**
   * Make the UI use the name of the trace in its title, its sidebar and its exports, and load it faster: without plugins
   * for other systems, and without redraws. Other versions may not support this.
   * @param {PerfettoApp} app
   * @param {string} name
   * @param {boolean} isOriginal an original may be of these systems
   */
  function prepare(app, name, isOriginal) {
    const shared = Object.getPrototypeOf(app);
    const activate = shared.setActiveTrace;
    const others = app.plugins.orderedPlugins.filter(
      (/** @type {any} */ plugin) => plugin.active && OTHER_SYSTEMS.test(plugin.desc.id),
    );
    shared.setActiveTrace = function (/** @type {PerfettoTrace} */ opened) {
      const info = opened.traceInfo;
      const isOurs = info.source.type === 'HTTP_RPC';
      for (const plugin of others) plugin.active = !isOurs || isOriginal; // a file that is opened later may be of their systems
      if (isOurs) {
        info.traceTitle = name;
        info.traceUrl = `${location.origin}/traces/${trace}`;
        if (app.httpRpc) app.httpRpc.newEngineMode = 'FORCE_BUILTIN_WASM'; // for a file that is opened next: the engine has a trace already
        dropExamples(app.sidebar?.menuItems);
        redrawOnceLoaded(app, opened);
      }
      return activate.call(this, opened);
    };
  }

  /**
   * Let answers of the engine redraw the page only once the trace is loaded, which redraws it anyway. While it loads, the
   * UI sends some fifty queries one after the other, and each would wait 20 ms for a redraw.
   * @param {PerfettoApp} app
   * @param {PerfettoTrace} trace
   */
  function redrawOnceLoaded(app, trace) {
    const engine = trace.engine.engine; // that of all plugins
    const redraw = engine?.onResponseReceived;
    if (!redraw) return;
    engine.onResponseReceived = () => {
      if (!app.isLoadingTrace) redraw();
    };
  }

  /**
   * Remove the examples from the sidebar: they are on a host of the UI's makers, which pages of ours may not reach.
   * @param {any} items
   */
  function dropExamples(items) {
    for (const {id, section} of items?.registry ? [...items.values()] : []) {
      if (section === 'example_traces') items.registry.delete(id);
    }
  }

  /**
   * Open the UI at the place that the address names. If that fails, the trace stays open.
   * @param {PerfettoApp} app
   */
  async function openAt(app) {
    try {
      const {openPlace} = await import('/static/place.js');
      await openPlace(app, address);
    } catch (error) {
      showUntilClosed(`The slice can't be shown. ${error.message}`, 'alert');
    }
  }

  /**
   * Make the UI show all arguments of a selected slice, and return what its engine has instead, for the title.
   * @param {PerfettoApp} app
   */
  async function showAllArguments(app) {
    const all = await import('/static/slice_arguments.js');
    all.showAllArguments(app, {trace, args, selection}, (text, ...more) => showUntilClosed(text, 'status', ...more));
    return all.LOADED[args];
  }

  const timeline = import('/static/timeline.js');
  timeline.catch(() => null); // a failed import is reported by the start below

  (async () => {
    try {
      const [, {name: whole}] = await ask('');
      const part = selection ? `${whole} (cut)` : chosenSource ? `${whole} (original)` : whole;
      document.title = `${part} - Perfetto UI`;
      const [app, isOriginal] = await Promise.all([uiReady(), engineReady()]);
      const hasAll = args === 'all' || isOriginal;
      const name = hasAll ? part : `${part} (${await showAllArguments(app)})`;
      prepare(app, name, isOriginal);
      if (!isOriginal) (await timeline).arrangeTimelines(app); // it needs the tables that come with columns
      app.openTraceFromHttpRpc();
      showNotice('');
      await openAt(app);
    } catch (error) {
      showBroken(`The trace can't be opened. ${error.message}`);
    }
  })();
})();
