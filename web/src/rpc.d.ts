/** What `serve` is told. */
export interface ServeOptions {
  /** Where a proxy listens for browsers: `weft rpc-proxy --web-port 8888` does so at `ws://HOST:8888/ws`. */
  url: string;
  /** The key that clients name. */
  key: string;
  /** Ends the server. */
  signal?: AbortSignal;
  /** Is told when a client comes and when it has left. */
  onSession?: (begins: boolean) => void;
  /** How long to wait before another try where the proxy is not there. */
  retryMs?: number;
}

/**
 * Serves remote calls from this page, one client after the other, until `signal` ends it. Whoever reaches the proxy may
 * run WebAssembly in the page. Throws WeftError where the proxy refuses the key.
 */
export function serve(options: ServeOptions): Promise<void>;
