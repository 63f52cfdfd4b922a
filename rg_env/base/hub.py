"""Whether a model of the Hugging Face hub can be had, asked before a program starts that would try for minutes.

Invariant: the hub is asked as transformers and vLLM ask it, with the user's token, mirror and offline mode.
"""

from __future__ import annotations

from rg_env.base.errors import UnavailableError, one_line, wrong_value

_SECONDS = 5.0
"""How long the hub has to answer."""


def check_hub_model(setting: str, name: str) -> None:
    """Refuse a model that is neither in the cache nor to be had from the hub.

    Args:
        setting: the setting or option that names it.
        name: `OWNER/NAME`, not a folder.

    Raises:
        UnavailableError: the hub does not answer, has no such model, or does not give it to this user.
    """
    import httpx
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    try:
        # A path if the file is in the cache; otherwise None, or a mark that the hub has none.
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=_SECONDS)
    except EntryNotFoundError:  # the model is there, without this file
        return
    except (OSError, ValueError, httpx.HTTPError) as error:
        right = f"there is no such folder, and as a model of the hub it is not here: `hf download {name}` gets it"
        right = f"{right} ({one_line(error, 200)})"
        raise UnavailableError(wrong_value(setting, name, right)) from None
