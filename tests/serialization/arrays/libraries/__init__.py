"""Array libraries that gpusched knows nothing of."""
