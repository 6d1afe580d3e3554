"""Models of other libraries over the chunks of dask arrays.

The files in the order in which a call goes through them: `applying` (what users call), `axes`
(which axes are rows), `recognise` (which library a model is of), `weights` (what travels of it, and
is loaded once a process), `outputs` (what it gives), `call` (what each task does), `policies` (how
its threads share it), `views` (arrays of other libraries over the same memory). A file for each
library: `torch`, `jax`, `tensorflow`, `onnx`, `sklearn`; `function_models` for everything else.
"""

from gpusched.models.applying import apply
from gpusched.models.errors import ModelError
from gpusched.models.weights import loaded

__all__ = ["ModelError", "apply", "loaded"]
