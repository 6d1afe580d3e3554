"""Programs of NumPy's arrays on a worker with a GPU.

`placing` runs each group of calls where `devicechoice` decides, by kernels or by `cupycalls`.
"""
