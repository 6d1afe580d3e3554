"""What a worker computes on: a GPU, or a slice of the host's cores and memory."""

from gpusched.workers.device.base import Device, LostContextError, OutOfDeviceMemoryError
from gpusched.workers.device.host import HostDevice

__all__ = ["Device", "HostDevice", "LostContextError", "OutOfDeviceMemoryError", "open_device"]


def open_device(gpu: bool = False, uuid: str = "", memory_limit: int = 0, pool: str = "cupy",
                pool_size: int | None = None) -> Device:  # fmt: skip
    """Return this process's device: the GPU it is pinned to, or the host's cores.

    Parameters
    ----------
    gpu
        Whether it is a GPU.
    uuid
        Which GPU it must be; empty for any.
    memory_limit
        Bytes that task results may take on the device; 0 for no limit.
    pool, pool_size
        Where GPU memory comes from, as in `gpusched.workers.pool.install`.

    Examples
    --------
    >>> from gpusched.workers.device import open_device
    >>> open_device().kind
    'cpu'
    """
    if not gpu:
        return HostDevice(memory_limit)
    from gpusched.workers.device.cuda import CudaDevice

    return CudaDevice(uuid, memory_limit, pool, pool_size)
