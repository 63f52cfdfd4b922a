"""Python runs this at its start where the folder is in PYTHONPATH: it writes down the token ids of every prompt that
rg_env's sampler or a model of transformers is given, one line of JSON each, to `$PROMPT_SPY/{sampler,server}-PID`."""

import importlib.abc
import importlib.util
import json
import os
import sys
from pathlib import Path


def write(who, token_ids):
    with Path(os.environ["PROMPT_SPY"], f"{who}-{os.getpid()}").open("a") as file:
        file.write(json.dumps([int(token) for token in token_ids]) + "\n")


def watch_sampler(module):
    start = module.Sampler._start

    def watched(self, request):
        write("sampler", request.prompt)
        return start(self, request)

    module.Sampler._start = watched


def watch_server(module):
    generate = module.GenerationMixin.generate

    def watched(self, *args, **kwargs):
        write("server", kwargs["input_ids"][0])
        return generate(self, *args, **kwargs)

    module.GenerationMixin.generate = watched


WATCHED = {"rg_env.skyrl.cpu.sampler": watch_sampler, "transformers.generation.utils": watch_server}


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        watch = WATCHED.pop(name, None)  # found by the other finders from now on
        spec = importlib.util.find_spec(name) if watch else None
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_watch(module):
                execute(module)
                watch(module)

            spec.loader.exec_module = execute_and_watch
        return spec


sys.meta_path.insert(0, Finder())
