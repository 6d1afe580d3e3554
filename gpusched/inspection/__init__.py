"""What a program will do, before it runs: stages, kernels, bytes, and graph breaks."""

from gpusched.inspection.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
