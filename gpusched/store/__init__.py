"""Kernels by key: in memory, on disk, in the compile service, on other workers.

In the order of calls: `handles` are kernels as launches hold them, and their stores;
`emitters` and `processors` are what a key consists of besides the kernel; `sharing` looks for
machine code on disk (`codefiles`, `kernelfiles`), asks other workers, and the `service`;
`worthwhile` says when a kernel is compiled at all, by how long compilations have taken and the
times of `unfused` runs of all processes, and `background` has it done, where that can wait
when none goes on; `tuned` remembers what is fastest; `statistics` counts all of it.
"""
