"""Where task results lie: on the device, in host memory, on disk."""
