"""Errors whose message is written for the person who typed the setting: what is wrong, and what would be right."""


class RGEnvError(Exception):
    """Base of the errors that `rg-env` prints as one line, without a traceback."""


class ConfigError(RGEnvError):
    """A setting, a task name or an option that cannot work. Raised before Ray starts."""


class ScorerPoolError(RGEnvError):
    """The scorer processes cannot be started any more; scoring on would only write zeros."""


class DumpError(RGEnvError):
    """The dump folder or a dump file cannot be used as asked."""
