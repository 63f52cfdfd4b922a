"""The CPU's sampler behind the part of OpenAI's API that `rg_env.evaluate` asks, on this machine and in this process.

Invariant: a prompt is rendered and a response is sampled and decoded as in a run on the CPU. Requests that wait
together are sampled as one batch. A prompt that does not fit is an error of its request.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from skyrl.train.utils.utils import str_to_torch_dtype

from rg_env.cpu.cpu_settings import SamplingParams, cpu_threads
from rg_env.cpu.sampler import Request, Sample, Sampler
from rg_env.errors import describe

MAX_BATCH, QUIET_SECONDS = 128, 0.1
"""Requests of a batch, and seconds without a new one after which it is sampled."""
_PARAMETERS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "stop")


@contextmanager
def serve_sampler(cfg: Any, tokenizer: Any, template_options: Mapping[str, Any]) -> Iterator[str]:
    """Serve the policy of a run until the block ends. Yields the address.

    Args:
        cfg: a run's settings.
        template_options: of `apply_chat_template`.
    """
    policy, dtype = cfg.trainer.policy, str_to_torch_dtype(cfg.generator.inference_engine.model_dtype)
    torch.set_num_threads(cpu_threads())
    options = dict(policy.model_config_kwargs)
    server = _Server(Sampler.from_pretrained(policy.model.path, cfg.trainer.seed, options, dtype))
    server.tokenizer, server.template_options = tokenizer, template_options
    for work in (server.serve_forever, server.sample_what_waits):
        threading.Thread(target=work, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.waiting.put(None)
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 2 * MAX_BATCH
    tokenizer: Any
    template_options: Mapping[str, Any]

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sampler = sampler
        self.waiting: queue.Queue[tuple[Request, Future[Sample]] | None] = queue.Queue()

    def sample_what_waits(self) -> None:
        """Sample batches until None is in the queue."""
        while (first := self.waiting.get()) is not None:
            batch = [first]
            with suppress(queue.Empty):
                while len(batch) < MAX_BATCH:
                    more = self.waiting.get(timeout=QUIET_SECONDS)
                    if more is None:
                        return
                    batch.append(more)
            try:
                samples = self.sampler.sample([request for request, _ in batch])
            except Exception as error:  # each of the batch must get it, or would wait for ever
                for _, sample in batch:
                    sample.set_exception(error)
            else:
                for (_, sample), result in zip(batch, samples, strict=True):
                    sample.set_result(result)

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the completion of a request. Raises what sampling raises."""
        prompt = self.tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, tokenize=True, return_dict=False, **self.template_options
        )
        params = SamplingParams.from_vllm({name: body.get(name) for name in _PARAMETERS})
        sample: Future[Sample] = Future()
        self.waiting.put((Request(tuple(prompt), params), sample))
        result = sample.result()
        message = {"role": "assistant", "content": result.text}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(result.token_ids)}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": result.stop_reason}],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing: this server answers its own process."""

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            self._send(200, self.server.answer(body))
        except Exception as error:
            self._send(400, {"error": {"message": describe(error), "type": "invalid_request_error"}})

    def _send(self, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
