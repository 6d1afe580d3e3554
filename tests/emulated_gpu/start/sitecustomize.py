"""Turns the emulated GPU on in a process that is to have it, before anything is imported."""

try:
    from tests import emulated_gpu
except ModuleNotFoundError:
    pass  # Another Python than the checkout's, of a tool.
else:
    if emulated_gpu.requested():
        emulated_gpu.activate()
