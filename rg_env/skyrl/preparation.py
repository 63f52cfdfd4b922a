"""What this process needs before the settings of a run are checked. Processes that it starts inherit both.

The checks themselves change nothing.
"""

from __future__ import annotations

import netrc
import os
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from rg_env.configuration.user_code import import_modules


def load_modules(cfg: Any) -> None:
    """Import the user's modules, which may register tasks. Raises as `import_modules`."""
    import_modules(cfg.rg_dump)


def set_wandb_key() -> None:
    """Put the key of `wandb login` where SkyRL looks for one and passes it on to its workers."""
    if os.environ.get("WANDB_API_KEY"):
        return
    if os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        os.environ["WANDB_API_KEY"] = "none"  # SkyRL wants one although nothing is sent
        return
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
    with suppress(OSError, netrc.NetrcParseError):
        if login := netrc.netrc(os.environ.get("NETRC")).authenticators(host):
            os.environ["WANDB_API_KEY"] = login[2]
