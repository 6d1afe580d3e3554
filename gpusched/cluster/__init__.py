"""Clusters on this machine: a process for each GPU, CPU processes, or all in one process."""

from gpusched.cluster.cluster import Cluster
from gpusched.cluster.in_process import local

__all__ = ["Cluster", "local"]
