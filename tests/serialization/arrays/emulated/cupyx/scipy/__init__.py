"""Holds the sparse matrices."""
