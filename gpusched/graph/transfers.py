"""What computing on the device costs against the host: a small model of copies and calls.

The rates need not be exact: a call of NumPy's takes about as long as the copy of its operand, so it
is where the operands are and how many calls there are that decides.
"""

from __future__ import annotations

from gpusched.dataclass import dataclass

LINK = 12e9
"""Bytes per second between page-locked memory and the device. PCIe 4.0 with 16 lanes has 25e9, of
which copies that are staged reach about half."""
HOST = 4e9
"""Bytes per second of operands of one call of NumPy's, on one thread. Measured on a shared server's
core (Intel Xeon, Sapphire Rapids, 2026-11-25): 12e9 to 28e9 for operands that fit the cache, 0.7e9
to 5e9 for larger ones, whose results are new pages."""
DEVICE = 500e9
"""Bytes per second that kernels read and write: half of what a data center's GPU of 2018 has."""
COPY = 20e-6
"""Seconds that each copy takes besides: a launch, and waiting for it."""
LAUNCH = 30e-6
"""Seconds that a kernel takes besides, and Python until it is launched."""


@dataclass(frozen=True)
class Work:
    """What some calls take and do."""

    nbytes: int
    """Bytes of the arrays among their inputs, as the calls see them."""
    calls: int
    """Calls that compute something, rather than show an array in another way."""
    upload: int
    """Bytes to copy for the device: what is behind those in host memory."""
    uploads: int
    """How many arrays these are."""
    download: int
    """Bytes to copy for the host: those in device memory."""
    downloads: int
    """How many arrays these are."""
    returned: int = 0
    """Bytes of results that the host needs afterwards."""
    passes: int = 1
    """How often the device goes through its operands: once, or for each call of CuPy's."""

    def host_seconds(self) -> float:
        """Return how long the calls take as NumPy's."""
        copies = self.download / LINK + self.downloads * COPY
        return copies + self.calls * self.nbytes / HOST

    def device_seconds(self) -> float:
        """Return how long they take on the device."""
        copies = (self.upload + self.returned) / LINK
        copies += (self.uploads + bool(self.returned)) * COPY
        # What only shows chunks in another way launches nothing.
        return copies + self.passes * (LAUNCH * bool(self.calls) + self.nbytes / DEVICE)

    def pays(self) -> bool:
        """Return whether the device is done sooner.

        Examples
        --------
        >>> from gpusched.graph.transfers import Work
        >>> size = 8 << 20
        >>> two_calls = Work(size, calls=2, upload=size, uploads=1, download=0, downloads=0)
        >>> a_view = Work(size, calls=0, upload=size, uploads=1, download=0, downloads=0)
        >>> of_the_device = Work(4096, calls=0, upload=0, uploads=0, download=4096, downloads=1)
        >>> two_calls.pays(), a_view.pays(), of_the_device.pays()
        (True, False, True)
        """
        return self.device_seconds() < self.host_seconds()
