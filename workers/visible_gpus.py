"""Which GPUs this process may use, found without importing any GPU array library."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpusched.workers import nvml
from gpusched.workers.nvml import Card

ENVIRONMENT_VARIABLE = "CUDA_VISIBLE_DEVICES"

_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
_PREFIXES = ("GPU-", "MIG-")

Request = str | int | Sequence[int | str]
"""What can be asked for: "all", a number of GPUs, or a list of positions and UUIDs."""


class NoDeviceError(RuntimeError):
    """A GPU was asked for and there is none, or there are fewer than asked for."""

    def of_command(self) -> str:
        """Return what a command with the flag ``--cpu`` says."""
        return f"{self}. For CPU workers, use --cpu"


def installed_devices() -> list[str]:
    """Return the UUIDs of the machine's GPUs in NVML's order, whether visible or not.

    Without nvidia-ml-py the kernel driver's folder is counted, and the entries are indices.
    """
    return [card.uuid for card in _cards()]


def visible_devices() -> list[str]:
    """Return the GPUs this process may use, each as an entry for CUDA_VISIBLE_DEVICES.

    As in CUDA's own reading of that variable, an entry that names no GPU hides itself and
    everything after it, and an empty value hides every GPU. Of a GPU in MIG mode its parts are
    returned, since only they can compute. No GPU is returned twice, whatever names it has.
    """
    cards = _cards()
    listed = os.environ.get(ENVIRONMENT_VARIABLE)
    if listed is None or not cards:
        entries = [str(index) for index in range(len(cards))]
    else:
        entries = [part.strip() for part in listed.split(",")]
    visible: dict[str, str] = {}
    for entry in entries:
        if not _names_device(entry, cards) or identity(entry, cards) in visible:
            break
        for usable in _usable(entry, cards):
            visible.setdefault(identity(usable, cards), usable)
    return list(visible.values())


def parse_request(text: str) -> Request:
    """Read a request for GPUs as typed: ``all``, a number of them, or a list.

    A list holds positions among the visible GPUs, or UUIDs: ``0,2`` or ``GPU-1b2c...,MIG-3d4e...``.
    A trailing comma makes a list of one: ``1,`` is the second GPU, ``1`` is any one. A GPU that is
    named twice gets two workers, if all of them are. Raises `ValueError` if the text is none of
    these.

    Examples
    --------
    >>> from gpusched.workers.visible_gpus import parse_request
    >>> parse_request("all"), parse_request("2"), parse_request("0,2"), parse_request("GPU-1b,")
    ('all', 2, [0, 2], ['GPU-1b'])
    """
    text = text.strip()
    if text == "all":
        return text
    if text.isdecimal():
        return int(text)
    names = [name.strip() for name in text.removesuffix(",").split(",")]
    listed = "," in text or text.startswith(_PREFIXES)
    if listed and all(name.isdecimal() or name.startswith(_PREFIXES) for name in names):
        return [int(name) if name.isdecimal() else name for name in names]
    raise ValueError(
        f"cannot read {text!r} as GPUs: write 'all', a number such as '2', or positions or UUIDs "
        f"such as '0,2' or 'GPU-1b2c3d4e-...'"
    )


def select_devices(request: Request, visible: Sequence[str]) -> list[str]:
    """Return those of the visible GPUs that a request takes, one entry per worker.

    Raises `ValueError` if the request makes no sense on any machine: none, or some GPUs more often
    than others; `NoDeviceError` if this machine does not have what is asked for.

    Parameters
    ----------
    request
        ``"all"``, a number of GPUs, or a list of positions among the visible ones and of UUIDs.
    visible
        Entries for CUDA_VISIBLE_DEVICES, as of :func:`visible_devices`.

    Examples
    --------
    >>> from gpusched.workers.visible_gpus import select_devices
    >>> select_devices([2, 0], ["0", "3", "5"]), select_devices([0, 0, 1, 1], ["0", "3", "5"])
    (['5', '0'], ['0', '0', '3', '3'])
    """
    if request == "all":
        if not visible:
            raise NoDeviceError(_missing("all GPUs were asked for", visible))
        listed: list[int | str] = list(range(len(visible)))
    elif isinstance(request, str):
        return select_devices(parse_request(request), visible)
    elif isinstance(request, int):
        if request > len(visible):
            asked = "1 GPU was" if request == 1 else f"not so many GPUs: {request} were"
            raise NoDeviceError(_missing(f"{asked} asked for", visible))
        listed = list(range(request))
    else:
        listed = _read_list(request)
    if not listed:
        raise ValueError("at least one GPU must be asked for; for none, ask for CPU workers")
    if all(isinstance(name, int) for name in listed):
        # What contradicts itself does so on any machine.
        _check_shares(listed, listed)
    entries = _entries(listed, visible)
    _check_shares(listed, entries)
    return entries


def identity(entry: str, cards: Sequence[Card] | None = None) -> str:
    """Return the UUID that an entry for CUDA_VISIBLE_DEVICES means, or the entry where unknown.

    Examples
    --------
    >>> from gpusched.workers.visible_gpus import identity
    >>> from gpusched.workers.nvml import Card
    >>> cards = [Card("GPU-aa"), Card("GPU-bb", True, ("MIG-cc",))]
    >>> identity("1", cards), identity("GPU-a", cards), identity("MIG-c", cards)
    ('GPU-bb', 'GPU-aa', 'MIG-cc')
    """
    cards = _cards() if cards is None else cards
    if entry.isdecimal():
        return cards[int(entry)].uuid if int(entry) < len(cards) else entry
    uuids = [uuid for card in cards for uuid in (card.uuid, *card.parts)]
    matching = [uuid for uuid in uuids if uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else entry


def _read_list(request: object) -> list[int | str]:
    names = request if isinstance(request, list | tuple) else [request]
    return [_read_name(name, request) for name in names]


def _read_name(name: object, request: object) -> int | str:
    """Read one name of a list: a position, also as text, or a UUID or its beginning."""
    if isinstance(name, str) and name.isdecimal():
        name = int(name)
    if isinstance(name, str) and name.startswith(_PREFIXES):
        return name
    if isinstance(name, int) and not isinstance(name, bool):
        if name < 0:
            raise ValueError(f"a GPU's position cannot be negative: {name}")
        return name
    raise ValueError(
        f"cannot read {name!r} in {request!r} as a GPU: write positions or UUIDs, such as "
        f"[0, 2] or ['GPU-1b2c3d4e-...']"
    )


def _entries(listed: Sequence[int | str], visible: Sequence[str]) -> list[str]:
    cards = _cards()
    by_identity = {identity(entry, cards): entry for entry in visible}
    entries, missing = [], []
    for name in listed:
        if isinstance(name, int):
            found = list(visible[name : name + 1])
        else:
            uuids = [uuid for uuid in by_identity if uuid.startswith(name)]
            if len(uuids) > 1:
                raise ValueError(f"{name} may be any of {', '.join(uuids)}: write more of the UUID")
            found = [by_identity[uuid] for uuid in uuids]
        entries += found
        if not found:
            missing.append(name)
    if missing:
        names = ", ".join(map(str, dict.fromkeys(missing)))
        raise NoDeviceError(_missing(f"no such GPU: {names}", visible))
    return entries


def _check_shares(listed: Sequence[int | str], entries: Sequence[int | str]) -> None:
    times = Counter(entries)
    if len(set(times.values())) > 1:
        fewest = min(times.values())
        pairs = zip(listed, entries, strict=True)
        names = [name for name, entry in pairs if times[entry] > fewest]
        raise ValueError(
            f"GPU {names[0]} is named {len(names)} times in {','.join(map(str, listed))} and "
            f"others {fewest} times: name each once, or all equally often for several workers on "
            f"each"
        )


def _missing(problem: str, visible: Sequence[str]) -> str:
    listed = os.environ.get(ENVIRONMENT_VARIABLE)
    setting = f"{ENVIRONMENT_VARIABLE} is {'not set' if listed is None else repr(listed)}"
    there = f"there are {len(visible)} ({_listed(visible)})" if visible else "none was found"
    return (
        f"{problem}; {there} (asked the NVIDIA driver through NVML and {_DRIVER_FOLDER}; {setting})"
    )


def _listed(visible: Sequence[str]) -> str:
    """Return the visible GPUs as text, with their positions where those are not their names."""
    if all(entry == str(position) for position, entry in enumerate(visible)):
        return ", ".join(visible)
    return ", ".join(f"position {position} is {entry}" for position, entry in enumerate(visible))


def _names_device(entry: str, cards: Sequence[Card]) -> bool:
    if entry.isdecimal():
        return int(entry) < len(cards)
    if entry.startswith("MIG-"):
        # Taken at its word: its older names (MIG-GPU-.../1/0) are known to CUDA alone.
        return True
    if re.fullmatch(r"GPU-[0-9a-fA-F-]+", entry) is None:
        return False
    uuids = [card.uuid for card in cards if not card.uuid.isdecimal()]
    # Without NVML no UUID is known, and a well-formed one is taken at its word.
    return not uuids or sum(uuid.startswith(entry) for uuid in uuids) == 1


def _usable(entry: str, cards: Sequence[Card]) -> Sequence[str]:
    """Return the entries that can compute where the given one is named."""
    found = identity(entry, cards)
    divided = [card.parts for card in cards if card.divided and card.uuid == found]
    if divided:
        return divided[0]
    # CUDA reads the beginning of a card's UUID, not that of a part's.
    return [found if entry.startswith("MIG-") else entry]


def _cards() -> list[Card]:
    cards = nvml.cards()
    if cards is not None:
        return cards
    if _has_nvml():
        return []
    try:
        return [Card(str(index)) for index in range(len(list(_DRIVER_FOLDER.iterdir())))]
    except OSError:
        return []


def _has_nvml() -> bool:
    # Installed and not answering means that there is no driver, and so no GPU.
    try:
        import pynvml  # noqa: F401
    except ImportError:
        return False
    return True
