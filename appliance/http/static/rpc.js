// JSON-RPC to the core over WebSockets. Plain calls share one connection; whatever streams has one of its own, because
// notifications do not say which call they belong to.

export class RpcError extends Error {
  constructor(error) {
    super(error.message);
    this.outcome = error.data?.outcome ?? "failed";
    this.hint = error.data?.hint ?? "";
  }
}

export class Lost extends RpcError {
  constructor(message = "not connected") {
    super({ message, data: { outcome: "connection_lost", hint: "it connects again by itself" } });
  }
}

const OPEN_MS = 15000;

class Socket {
  constructor(address, onNotify, onClose) {
    this.calls = new Map();
    this.next = 0;
    this.socket = new WebSocket(address);
    this.opened = new Promise((resolve, reject) => {
      const late = setTimeout(() => this.socket.close(), OPEN_MS);
      this.socket.onopen = () => {
        clearTimeout(late);
        resolve();
      };
      this.socket.onclose = (event) => {
        clearTimeout(late);
        reject(new Lost());
        for (const { reject: fail } of this.calls.values()) fail(new Lost("the connection was lost"));
        this.calls.clear();
        onClose(event);
      };
    });
    this.opened.catch(() => {});
    this.socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (frame.method) return onNotify(frame.method, frame.params ?? {});
      const call = this.calls.get(frame.id);
      this.calls.delete(frame.id);
      if (frame.error) (call?.reject ?? (() => {}))(new RpcError(frame.error));
      else call?.resolve(frame.result);
    };
  }

  async call(method, params, deadline) {
    await this.opened;
    const id = (this.next += 1);
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      const frame = { jsonrpc: "2.0", id, method, params };
      if (deadline) frame.deadline_s = deadline;
      this.socket.send(JSON.stringify(frame));
    });
  }

  close() {
    this.socket.close();
  }
}

export class Core {
  constructor() {
    this.context = "";
    this.main = null;
  }

  get address() {
    const place = new URL("/rpc", location.href);
    place.protocol = place.protocol.replace("http", "ws");
    if (this.context) place.searchParams.set("context", this.context);
    return place.href;
  }

  // One call; the connection is made when there is none.
  async call(method, params = {}) {
    if (!this.main) {
      const made = new Socket(this.address, () => {}, () => {
        if (this.main === made) this.main = null;
      });
      this.main = made;
    }
    return this.main.call(method, params);
  }

  // A call that streams; `onNotify` hears of what comes. `closed` of the result is called to end it.
  stream(method, params, onNotify, deadline = 7 * 86400) {
    const made = new Socket(this.address, onNotify, () => {});
    const result = made.call(method, params, deadline).finally(() => made.close());
    result.catch(() => {});
    return { result, close: () => made.close() };
  }

  // Work for a group, or with "" for oneself, from now on: on a new connection.
  setContext(context) {
    this.context = context;
    this.main?.close();
    this.main = null;
  }
}
