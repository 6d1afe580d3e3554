"""Pages on distributed's own dashboard: GPUs, Kernels, Fusion and Timeline.

`page_registration` gives the pages to distributed, before its dashboard starts. `observer` keeps
what a scheduler's workers report while somebody looks, and `answers` is what runs on workers when a
page asks. `components` are the plots, a file each; `pages` puts them together.

Importing this package imports no bokeh: that comes with the dashboard.
"""
