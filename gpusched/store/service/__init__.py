"""The compile service: one process per user and machine that compiles kernels for all others.

`client` is what other folders use. `start` starts the service where none answers at its `places`,
at the `priority` that compilation has; a `connection` carries `frames` with kernels as
`definitions`. `server` is the process, its `jobs` are done by its `crew`.

Nothing is imported here, so that the service's process starts without what only clients need.
"""
