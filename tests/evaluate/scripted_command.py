"""`rg-env` with a small program in the place of vLLM: `python -m tests.evaluate.scripted_command MODE eval …`.

Only the model is scripted. The server is a process with a child, as vLLM's is, and is started, watched and stopped by
rg_env. MODE: `answers`; `dies` after some requests; `refuses` to start.
"""

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rg_env.cli import main
from rg_env.evaluate import run, server

DIES_AFTER = 9


class Handler(BaseHTTPRequestHandler):
    mode = "answers"
    asked = 0

    def do_GET(self):
        self._send({})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        type(self).asked += 1
        if self.mode == "dies" and self.asked > DIES_AFTER:
            print("torch.OutOfMemoryError: no memory is left", flush=True)
            os._exit(1)
        time.sleep(0.1)
        message = {"role": "assistant", "content": "<think>x</think><answer>1</answer>"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        self._send(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        )

    def _send(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(mode, port):
    if mode == "refuses":
        print("OSError: m is not a model that is known\nlast line", flush=True)
        sys.exit(3)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Handler.mode = mode
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    mode = sys.argv[1]
    if "--port" in sys.argv and "--host" in sys.argv:
        serve(mode, int(sys.argv[sys.argv.index("--port") + 1]))
    command = [sys.executable, "-m", "tests.evaluate.scripted_command", mode]
    run.program_for = lambda model: server.Program("scripted", command, 4)
    sys.argv = ["rg-env", *sys.argv[2:]]
    main()
