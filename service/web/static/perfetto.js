// Runs ahead of the Perfetto UI's own script, on the page /perfetto/{view}/ that serves our copy of it. A view is a
// trace's id, or that and, behind a ~, what is selected of it and which arguments it has: JSON in base64url.
// The UI knows one engine, at 127.0.0.1:9001. This leads those requests to the trace's engine on our origin,
// waits until that has loaded the trace, and has the UI open it, with no dialog and no other port.
'use strict';

(() => {
  const view = location.pathname.split('/').filter(Boolean).at(-1);
  const [trace, code] = view.split('~');
  const root = `${location.origin}/perfetto/${view}/rpc`;

  /** The text that base64url stands for. */
  const textOf = (base64url) => {
    const bytes = atob(base64url.replaceAll('-', '+').replaceAll('_', '/'));
    return new TextDecoder().decode(Uint8Array.from(bytes, (sign) => sign.charCodeAt(0)));
  };
  // The server writes its keys in order. What is selected stays text: its times would not fit the numbers of JSON.parse.
  const [, args = 'all', selection = ''] = /^{(?:"args":"(\w+)",?)?(?:"selection":(.*))?}$/.exec(code ? textOf(code) : '{}') ?? [];

  // Of an address that names no page, the UI asks its server for a trace that only its makers' server has.
  const address = location.href; // the UI changes it
  const namesPage = () => /^#!\/\w/.test(location.hash);
  const viewer = () => `#!/viewer${/\?.*/s.exec(location.hash)?.[0] ?? ''}`;
  if (!namesPage()) history.replaceState(history.state, '', viewer());
  window.addEventListener('hashchange', (event) => {
    if (namesPage()) return;
    event.stopImmediatePropagation(); // the UI's own listener comes later
    location.replace(viewer());
  });

  const isEngine = (url) => ['127.0.0.1', 'localhost'].includes(url.hostname) && url.port === '9001';

  const lead = (address) => {
    const url = new URL(address, location.href);
    if (!isEngine(url)) return address;
    const target = new URL(root + url.pathname);
    if (url.protocol.startsWith('ws')) target.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    return target.href;
  };

  const fetchAnywhere = window.fetch;
  window.fetch = (resource, options) =>
    fetchAnywhere(typeof resource === 'string' || resource instanceof URL ? lead(resource) : resource, options);

  // What the UI makes of a lost engine is either silence or a form that asks to file a bug with its makers. So the
  // end of its connection is told here, and not to the UI.
  window.WebSocket = class extends window.WebSocket {
    constructor(address, protocols) {
      const led = lead(address);
      super(led, protocols);
      if (led === address) return;
      this.addEventListener('error', (event) => event.stopImmediatePropagation());
      this.addEventListener('close', (event) => {
        event.stopImmediatePropagation();
        if (!this.wanted) sayBroken(event.reason || 'The connection to the server is lost.', UNTIL_RELOADED);
      });
    }

    close(code, reason) {
      this.wanted = true;
      super.close(code, reason);
    }
  };

  // The UI asks a host of its makers whether they are looking. Nothing here leaves our origin, nor tries to.
  const source = Object.getOwnPropertyDescriptor(HTMLScriptElement.prototype, 'src');
  Object.defineProperty(HTMLScriptElement.prototype, 'src', {
    ...source,
    set(address) {
      if (new URL(address, location.href).origin === location.origin) source.set.call(this, address);
      else queueMicrotask(() => this.dispatchEvent(new Event('error')));
    },
  });

  // The UI would register a worker that caches one version of itself for the whole origin.
  if (navigator.serviceWorker) {
    navigator.serviceWorker.register = () => Promise.reject(new Error('This copy of the UI uses no service worker.'));
  }

  const notice = document.createElement('div');
  notice.dataset.testid = 'perfetto-notice';
  notice.style.cssText =
    'position:fixed;inset:auto 0 0 0;z-index:10000;padding:10px 16px;display:flex;flex-wrap:wrap;gap:4px 16px;' +
    'align-items:center;font:14px/1.45 system-ui,sans-serif;background:#1f2a37;color:#fff;overflow-wrap:anywhere';

  /** Show a line at the foot of the page; no text takes it away. */
  const say = (text, role = 'status', ...more) => {
    notice.setAttribute('role', role);
    notice.replaceChildren(text, ...more);
    if (!text) notice.remove();
    else if (!notice.isConnected) document.documentElement.append(notice);
  };

  const BUTTON =
    'padding:3px 12px;font:inherit;color:#fff;background:#0b5cad;border:1px solid #9cc8f5;border-radius:5px;cursor:pointer';

  /** Say what can't be mended but by loading the page again. */
  const sayBroken = (text, then = '') => {
    const reload = document.createElement('button');
    reload.type = 'button';
    reload.textContent = 'Reload';
    reload.style.cssText = BUTTON;
    reload.addEventListener('click', () => location.reload());
    say(`${then}${text}`, 'alert', reload);
  };

  const UNTIL_RELOADED = 'The trace is out of reach until this page is reloaded. ';

  const megabytes = (bytes) => (bytes / 1e6).toFixed(0);

  /** The answer of our API; throws an Error that says what it refused. */
  async function ask(path, options) {
    let response;
    try {
      response = await fetchAnywhere(`/api/v1/traces/${trace}${path}`, options);
    } catch {
      throw new Error('The server does not answer.');
    }
    const answer = await response.json();
    if (!response.ok) throw new Error(`${answer.title}. ${answer.detail}`);
    return [response.status, answer];
  }

  async function engineReady() {
    const chosen = new URLSearchParams({wait: 1, args, ...(selection && {selection})});
    for (;;) {
      const [status, session] = await ask(`/session?${chosen}`, {method: 'POST'});
      if (status === 200) return;
      if (session.state === 'waiting') say('The engine waits until others that make room for it have ended.');
      else say(`The engine is loading the trace: ${megabytes(session.progress.bytes)} MB so far.`);
    }
  }

  // The UI says nowhere that it has started: its `app` object appears when it has.
  const uiReady = () =>
    new Promise((resolve) => {
      const look = () => (window.app?.openTraceFromHttpRpc ? resolve(window.app) : setTimeout(look, 50));
      look();
    });

  /** Have the UI call the trace by its name, in its title, its sidebar and what it exports. Another UI may not know how. */
  function label(app, name) {
    const shared = Object.getPrototypeOf(app);
    const activate = shared.setActiveTrace;
    shared.setActiveTrace = function (opened) {
      const info = opened.traceInfo;
      if (info.source.type === 'HTTP_RPC') {
        info.traceTitle = name;
        info.traceUrl = `${location.origin}/traces/${trace}`;
        if (app.httpRpc) app.httpRpc.newEngineMode = 'FORCE_BUILTIN_WASM'; // for a file opened next: the engine has its trace
        dropExamples(app.sidebar?.menuItems);
      }
      return activate.call(this, opened);
    };
  }

  /** The examples lie on a host of the UI's makers, which is out of reach from here. */
  function dropExamples(items) {
    for (const {id, section} of items?.registry ? [...items.values()] : []) {
      if (section === 'example_traces') items.registry.delete(id);
    }
  }

  /** Open the UI at the place that the address names; the trace stays open where that is not to be had. */
  async function openAt(app) {
    try {
      const {openPlace} = await import('/static/place.js');
      await openPlace(app, address);
    } catch (error) {
      const close = document.createElement('button');
      close.type = 'button';
      close.textContent = 'Close';
      close.style.cssText = BUTTON;
      close.addEventListener('click', () => say(''));
      say(`The slice can't be shown. ${error.message}`, 'alert', close);
    }
  }

  const timeline = import('/static/timeline.js');
  timeline.then(({widenTitles}) => widenTitles(), () => null); // the start below tells why it can't be had

  (async () => {
    try {
      const [, {name: whole}] = await ask('');
      const name = selection ? `${whole} (cut)` : whole;
      document.title = `${name} - Perfetto UI`;
      const [app] = await Promise.all([uiReady(), engineReady()]);
      label(app, name);
      (await timeline).arrangeTimelines(app);
      app.openTraceFromHttpRpc();
      say('');
      await openAt(app);
    } catch (error) {
      sayBroken(`The trace can't be opened. ${error.message}`);
    }
  })();
})();
