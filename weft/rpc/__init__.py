"""Remote calls: a session with a server on another machine, over TVM's wire protocol."""
