"""What happened while a program ran: one timeline of all threads, processes and machines.

The files in the order in which a profile goes through them: `session` (begins and ends it),
`local_schedulers` and `profiled_tasks` (this process), `remote` and `plugins` (a cluster's),
`process_report` (what each process reports), `clocks` (theirs on one), `timeline` (spans on lanes),
`kernel_table` with `lines` and `memory_bandwidth` (the table), `report` (what one gets), and its
forms `text`, `html` and `chrome_trace`.
"""

from gpusched.profiling.report import Profile
from gpusched.profiling.session import profile

__all__ = ["Profile", "profile"]
