"""What caller, server and worker send each other, in one place: neither side imports the other for it.

- caller → server, a socket (*control*): a number per command (`COMMAND`). With a socket attached: fork a worker of this
  number, which talks through that socket. Without: kill the worker of this number.
- caller → server, standard input, once: a pickle of (target, examples), or nothing.
- caller → worker, its socket: a pickle of (target, arguments, word) per request, in messages of one or several. The
  word is a random one of the message.
- worker → caller, the same socket: one line of JSON for its start, then one per request, [word, reply], sent as soon as
  it is known.
- server → caller: its exit code, and the last line of its standard error.

A *target* is a pickle of (module, function, …): what that function makes of the rest answers requests.
"""

from __future__ import annotations

import struct

COMMAND = struct.Struct("!q")
CANNOT_SERVE = 3
"""Exit code of a server: no later attempt can fix it. The last line that the server wrote says why."""
CANNOT_SERVE_NOW = 4
"""Exit code of a server: a later attempt may succeed, because memory, descriptors or processes were used up. To the
caller it is like any other end: a new server is started."""
