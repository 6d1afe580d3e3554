"""The compile service: one process per user and machine that compiles kernels for all others.

`client` is what other folders use. `start` is where the service is met, and starts it where none
answers; a `connection` carries `protocol`, with kernels as data
(`gpusched.emit.kernel`). `server` is the process, its `compilations` are done by its `compilers`.

Nothing is imported here, so that the service's process starts without what only clients need.
"""
