"""How many scorer processes `scorer.workers: auto` means.

Half of the cores, because training, engines and the process that asks need the others, within two bounds: two, so that
a slow answer does not stop all others; and half as many as SkyRL has threads that ask (32), beyond which workers idle.
Workers are started when they are needed, so a large number costs nothing by itself.
"""

from __future__ import annotations

_FEWEST, _MOST = 2, 16


def workers_for(setting: int | str, cores: int) -> int:
    """The number of workers.

    Args:
        setting: `scorer.workers`: a number, or `auto`.
        cores: of the machine, as far as this process may use them.

    >>> [workers_for("auto", cores) for cores in (1, 2, 8, 16, 200)], workers_for(3, 8)
    ([2, 2, 4, 8, 16], 3)
    """
    return setting if isinstance(setting, int) else min(_MOST, max(_FEWEST, cores // 2))
