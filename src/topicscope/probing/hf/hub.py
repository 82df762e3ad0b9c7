"""Whether the Hugging Face hub can be reached, found out at once: its own client tries again for half a minute."""

import socket
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from huggingface_hub import constants

TIMEOUT_S = 3.0


def why_unreachable(timeout_s: float = TIMEOUT_S) -> str | None:
    """None where a connection to the hub, or to the proxy in front of it, can be made; else the reason in words."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids to ask the hub"
    hub = urlsplit(constants.ENDPOINT)
    proxy = None if proxy_bypass(hub.hostname or "") else getproxies().get(hub.scheme)
    target = hub if proxy is None else urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = target.hostname or "", target.port or (443 if target.scheme == "https" else 80)
    found: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            found.append(None)
        except OSError as error:
            found.append(error)

    # The look-up of a name knows no timeout, so it must not hold up the caller.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        return f"{host} did not answer within {timeout_s:g} s"
    return None if found[0] is None else f"{host} cannot be reached ({found[0].strerror or found[0]})"
