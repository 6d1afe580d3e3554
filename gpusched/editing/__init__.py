"""Users' versions of kernels: checked against the original on samples, applied, removed.

`edited` is what a user holds; `checking` compares it with the original on `samples`.
"""
