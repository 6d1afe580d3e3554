"""What ``gpusched doctor`` checks: one function per question, each with an answer and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpusched.cli.checks import dependencies, fusion, gpu, gpu_kernels, resources, skew
from gpusched.cli.checks.finding import Finding

Check = Callable[[], Finding]

HERE: dict[str, Check] = {
    "NVIDIA driver": gpu.driver,
    "CUDA packages": gpu.packages,
    "NVML": gpu.nvml,
    "GPU kernels": gpu_kernels.kernels,
    "pinning": gpu.pinning,
    "ports": resources.ports,
    "loopback": resources.loopback,
    "memory limit": resources.memory_limit,
    "open files": resources.open_files,
    "shared memory": resources.shared_memory,
    "spill folder": resources.spill_folder,
    "dependencies": dependencies.tested,
    "kernel cache": fusion.kernel_cache,
    "fused program": fusion.program,
}
"""The checks of this machine, in the order in which one may explain the next."""


def run(
    scheduler: str | None = None, certificates: Mapping[str, str | None] | None = None
) -> Iterator[Finding]:
    """Yield a finding for each check; with a scheduler's address, for its versions too."""
    checks = dict(HERE)
    if scheduler is not None:
        checks["versions"] = lambda: skew.versions(scheduler, certificates)
    for name, check in checks.items():
        try:
            found = check()
        except Exception as error:  # noqa: BLE001
            # A check that fails itself is a finding; the others are worth having all the same.
            found = Finding.failure(
                f"the check itself failed: {type(error).__name__}: {error}",
                "report this to gpusched, with the output of gpusched info",
            )
        yield found.named(name)
