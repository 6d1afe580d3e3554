"""Where task results are: on the device, in host memory, on disk."""
