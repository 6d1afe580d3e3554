"""Jobs: a script and its cluster, for as long as a queueing system lends the nodes.

`gpusched submit` writes a job script (``systems``, one file per queueing system) and keeps a
record of the job (``submitted``). In the job, ``head_node`` starts ``node`` on each node, and
ends with the script's exit code. ``checkpointing`` keeps results for a job that is started again,
as long as the user's ``own_modules`` are the same.
"""

from gpusched.jobs.checkpointing import checkpoint

__all__ = ["checkpoint"]
