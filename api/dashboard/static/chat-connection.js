// The socket to the web connector: tickets, reconnecting with what was missed, and a heartbeat.

const BACKOFF = [500, 1000, 2000, 4000, 8000];
const HEARTBEAT = 25_000;
const ANSWER_WITHIN = 10_000;

export class Connection {
  constructor(url, memory, events) {
    this.url = url;
    this.memory = memory;
    this.events = events; // { state(name, text), frame(frame), channelLost() }
    this.failures = 0;
    this.refusals = 0;
    this.socket = null;
    this.ready = false;
    this.userId = "";
  }

  start() {
    addEventListener("online", () => this.retryNow());
    addEventListener("visibilitychange", () => { if (!document.hidden) this.retryNow(); });
    setInterval(() => this.beat(), HEARTBEAT);
    this.open();
  }

  send(frame) {
    if (!this.ready || this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  restart() {
    this.failures = 0;
    this.refusals = 0;
    this.close();
    this.open();
  }

  retryNow() {
    if (!this.socket && this.timer) {
      clearTimeout(this.timer);
      this.open();
    }
  }

  async open() {
    this.timer = null;
    if (this.failures < 2) this.events.state("connecting", this.failures ? "Reconnecting…" : "Connecting…");
    const credentials = await this.credentials();
    if (!credentials || this.socket) return;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    const { channelId, lastId } = this.memory.read();
    socket.onopen = () => socket.send(JSON.stringify({ type: "auth", ...credentials, ...(channelId ? { channelId, lastId } : {}) }));
    socket.onmessage = (event) => this.received(socket, JSON.parse(event.data));
    socket.onclose = (event) => { if (this.socket === socket) this.closed(event.code); };
  }

  // A ticket from the dashboard; while the dashboard is away, the token of the last time.
  async credentials() {
    const { resumeToken } = this.memory.read();
    try {
      const token = document.querySelector('meta[name="csrf-token"]').content;
      const answer = await fetch("/api/web/tickets", {
        method: "POST",
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
        body: "{}",
      });
      if (answer.ok) return { ticket: (await answer.json()).ticket };
      if (answer.status === 401 || answer.status === 403) {
        this.events.state("refused", "Signed out");
        return null;
      }
    } catch { /* unreachable: handled below like any other failure */ }
    if (resumeToken && !this.refusals) return { resumeToken };
    this.later();
    return null;
  }

  received(socket, frame) {
    clearTimeout(this.deadline);
    if (socket !== this.socket) return;
    if (frame.type === "auth_ok") {
      if (this.stranger(frame)) return;
      this.ready = true;
      this.failures = 0;
      this.refusals = 0;
      this.userId = frame.userId;
      this.memory.change((state) => Object.assign(state, { channelId: frame.channelId, resumeToken: frame.resumeToken }));
      this.events.state("online", "Connected");
    }
    this.events.frame(frame);
  }

  // Another installation: our channel and lastId are from a store that is gone.
  stranger({ instance }) {
    const before = this.memory.read().instance;
    this.memory.change((state) => { state.instance = instance; });
    if (!before || before === instance) return false;
    this.events.channelLost("Maestro starts from an empty store, so this is a new conversation.");
    this.restart();
    return true;
  }

  closed(code) {
    this.close();
    if (code === 4403) {
      this.events.channelLost("That conversation belongs to another user, so a new one was started.");
      this.refusals += 1;
    } else if (code === 4401) {
      this.refusals += 1;
      this.memory.change((state) => { state.resumeToken = ""; });
    }
    if (this.refusals > 2) this.events.state("refused", "Not let in");
    else this.later();
  }

  close() {
    const socket = this.socket;
    this.socket = null;
    this.ready = false;
    clearTimeout(this.deadline);
    clearTimeout(this.timer);
    if (socket) socket.close();
  }

  later() {
    const wait = BACKOFF[Math.min(this.failures, BACKOFF.length - 1)] * (0.75 + Math.random() / 2);
    this.failures += 1;
    this.events.state(this.failures > 1 ? "offline" : "connecting", this.failures > 1 ? "Offline" : "Reconnecting…");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), wait);
  }

  beat() {
    if (!this.send({ type: "ping" })) return;
    clearTimeout(this.deadline);
    this.deadline = setTimeout(() => this.closed(0), ANSWER_WITHIN); // half-open: the network is gone without a word
  }
}
