"""What deep learning needs of arrays and dask.array lacks, on chunks, fused with what is around.

All functions take dask arrays, and NumPy's or CuPy's; parameters (weights, biases) are laid out as
torch's. Elementwise parts become one kernel with the NumPy calls before and after them; matrix
products are those of the chunks' library (BLAS, cuBLAS).
"""

from gpusched.ops.activations import gelu, relu, sigmoid, silu
from gpusched.ops.convolution import conv1d, conv2d, conv3d
from gpusched.ops.linear import linear
from gpusched.ops.normalisation import batch_norm, layer_norm
from gpusched.ops.pooling import avg_pool, max_pool
from gpusched.ops.recurrent import gru, lstm
from gpusched.ops.softmax import log_softmax, softmax

__all__ = [
    "avg_pool",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "gelu",
    "gru",
    "layer_norm",
    "linear",
    "log_softmax",
    "lstm",
    "max_pool",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
]
