"""How large chunks should be on the machine, or the cluster, that computes with them."""

from gpusched.chunking.chunk_bytes import Choice, choose
from gpusched.chunking.size import chosen

__all__ = ["Choice", "choose", "chosen"]
