"""The plots, a file each: each has a `root`, and `update`, which is called while it is shown."""
