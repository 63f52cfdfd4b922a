#!/usr/bin/env bash
# The openai client takes a reply of status 200 whose body is an error for a completion without choices.
#
# The usual guess: the client retries what fails, and raises an APIError with the server's message.
# What happens: gateways (OpenRouter does) answer with status 200 and {"error": {"code": 502, …}} where a model behind
# them failed. The client asks once, raises nothing, and returns a ChatCompletion whose `choices` is None; the message is
# in an extra attribute. A list in `content`, which Mistral's reasoning models return, is not refused either, although
# its type is `str | None`.
# Met by: evaluations and collections of responses over such an endpoint.
# The cure here: `rg-env eval --endpoint` retries such a reply, keeps its message, and joins a list of parts.
source "$(dirname "$0")/environment.sh"
environment openai==3.54.0
"$python" - <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai

PARTS = [{"type": "text", "text": "four"}]
REPLIES = {
    "an error": {"error": {"code": 502, "message": "the provider is overloaded"}},
    "a list": {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": PARTS}}]},
}
asked = []


class Gateway(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(request["model"])
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", **REPLIES[request["model"]]})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Gateway)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=2)
question = [{"role": "user", "content": "What is two and two?"}]
error = client.chat.completions.create(model="an error", messages=question)
listed = client.chat.completions.create(model="a list", messages=question)
server.shutdown()
content = listed.choices[0].message.content
print("openai", openai.__version__)
print(f"an error with status 200: asked {asked.count('an error')} time(s), choices {error.choices}, error {error.error}")
print(f"a list of parts: content {content!r}")
sys.exit(not (asked.count("an error") == 1 and error.choices is None and content == PARTS))
PY
