"""`rg-env` with a small program in the place of vLLM: `python -m tests.evaluate.scripted_command MODE eval …`.

Only the model is scripted. The server is a process with a child, as vLLM's is, and is started, watched and stopped by
rg_env. MODE: `answers`; `dies` after some requests; `refuses` to start.
"""

import os
import subprocess
import sys
import time

from rg_env.base import hub
from rg_env.cli import main
from rg_env.evaluate import run, server
from rg_env.rows import templates
from tests.evaluate.server import Server, completion

DIES_AFTER = 9


def serve(mode, port):
    if mode == "refuses":
        print("OSError: m is not a model that is known\nlast line", flush=True)
        sys.exit(3)

    def script(number, body):
        if mode == "dies" and number >= DIES_AFTER:
            print("torch.OutOfMemoryError: no memory is left", flush=True)
            os._exit(1)
        time.sleep(0.1)
        return completion("<think>x</think><answer>1</answer>")

    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Server(script, port).serve_forever()


def no_tokenizer(model):
    raise OSError("the scripted model has no files")


if __name__ == "__main__":
    mode = sys.argv[1]
    if "--port" in sys.argv and "--host" in sys.argv:
        serve(mode, int(sys.argv[sys.argv.index("--port") + 1]))
    command = [sys.executable, "-m", "tests.evaluate.scripted_command", mode]
    # The scripted model is on no hub.
    hub.check_hub_model = lambda setting, name: None
    templates.load_tokenizer = no_tokenizer
    run.program_for = lambda model: server.Program("scripted", command, 4)
    sys.argv = ["rg-env", *sys.argv[2:]]
    main()
