"""Which GPUs this process may use, found without importing any GPU array library."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENT_VARIABLE = "CUDA_VISIBLE_DEVICES"

_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")


class NoDeviceError(RuntimeError):
    """A GPU was asked for and there is none, or there are fewer than asked for."""


def installed_devices() -> list[str]:
    """Return the UUIDs of the machine's GPUs in NVML's order, whether visible or not.

    Without nvidia-ml-py the kernel driver's folder is counted, and the entries are indices.

    Examples
    --------
    >>> from gpusched.workers.devices import installed_devices
    >>> isinstance(installed_devices(), list)
    True
    """
    try:
        import pynvml
    except ImportError:
        return _devices_of_kernel_driver()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def visible_devices() -> list[str]:
    """Return the GPUs this process may use, each as an entry for CUDA_VISIBLE_DEVICES.

    As in CUDA's own reading of that variable, an entry that names no GPU hides itself and
    everything after it, and an empty value hides every GPU.

    Examples
    --------
    >>> from gpusched.workers.devices import visible_devices
    >>> len(visible_devices()) >= 0
    True
    """
    installed = installed_devices()
    listed = os.environ.get(ENVIRONMENT_VARIABLE)
    if listed is None or not installed:
        return [str(index) for index in range(len(installed))]
    visible: list[str] = []
    for entry in (part.strip() for part in listed.split(",")):
        if not _names_device(entry, installed) or entry in visible:
            break
        visible.append(entry)
    return visible


def parse_request(text: str) -> str | int | list[int]:
    """Read a request for GPUs as typed: ``all``, a number of them, or positions ``0,2``.

    A trailing comma makes a list of one: ``1,`` is the second GPU, ``1`` is any one.

    Raises
    ------
    ValueError
        If the text is none of these.

    Examples
    --------
    >>> from gpusched.workers.devices import parse_request
    >>> parse_request("all"), parse_request("2"), parse_request("0,2")
    ('all', 2, [0, 2])
    """
    text = text.strip()
    if text == "all":
        return text
    if text.isdecimal():
        return int(text)
    if "," in text:
        positions = text.removesuffix(",").split(",")
        if all(position.strip().isdecimal() for position in positions):
            return [int(position) for position in positions]
    raise ValueError(
        f"cannot read {text!r} as GPUs: write 'all', a number such as '2', or positions such as "
        f"'0,2'"
    )


def select_devices(request: str | int | Sequence[int], visible: Sequence[str]) -> list[str]:
    """Return those of the visible GPUs that a request takes.

    Parameters
    ----------
    request
        ``"all"``, a number of GPUs, or positions among the visible ones.
    visible
        Entries for CUDA_VISIBLE_DEVICES, as of :func:`visible_devices`.

    Raises
    ------
    ValueError
        If the request makes no sense on any machine: none, or one GPU twice.
    NoDeviceError
        If this machine does not have what is asked for.

    Examples
    --------
    >>> from gpusched.workers.devices import select_devices
    >>> select_devices([2, 0], ["0", "3", "5"])
    ['5', '0']
    """
    if request == "all":
        positions: Sequence[int] = range(max(1, len(visible)))
    elif isinstance(request, str):
        return select_devices(parse_request(request), visible)
    elif isinstance(request, int):
        positions = range(request)
    else:
        positions = list(request)
    if not positions:
        raise ValueError("at least one GPU must be asked for; for none, ask for CPU workers")
    if len(set(positions)) < len(positions):
        raise ValueError(f"a GPU is named twice in {list(positions)}")
    if min(positions) < 0:
        raise ValueError(f"a GPU's position cannot be negative: {list(positions)}")
    if max(positions) >= len(visible):
        raise NoDeviceError(_missing(max(positions) + 1, visible))
    return [visible[position] for position in positions]


def _missing(wanted: int, visible: Sequence[str]) -> str:
    listed = os.environ.get(ENVIRONMENT_VARIABLE)
    setting = f"{ENVIRONMENT_VARIABLE} is {'not set' if listed is None else repr(listed)}"
    found = f"{len(visible)} of the {wanted} wanted were found" if visible else "none was found"
    return (
        f"no such GPU: {found} (asked the NVIDIA driver through NVML and {_DRIVER_FOLDER}; "
        f"{setting})"
    )


def _names_device(entry: str, installed: Sequence[str]) -> bool:
    if entry.isdecimal():
        return int(entry) < len(installed)
    if entry.startswith("MIG-"):
        return True
    if re.fullmatch(r"GPU-[0-9a-fA-F-]+", entry) is None:
        return False
    uuids = [uuid for uuid in installed if not uuid.isdecimal()]
    # Without NVML no UUID is known, and a well-formed one is taken at its word.
    return not uuids or sum(uuid.startswith(entry) for uuid in uuids) == 1


def _devices_of_kernel_driver() -> list[str]:
    try:
        return [str(index) for index in range(len(list(_DRIVER_FOLDER.iterdir())))]
    except OSError:
        return []


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
