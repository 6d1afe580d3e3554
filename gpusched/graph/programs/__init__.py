"""Tasks as data: programs, and how they are made of dask's tasks.

`rewrite` translates each task, by what `functiontraits` has of the functions that it calls;
`templates` have that done once for all tasks of a form. `showing` says whose results functions may
see in memory. A `program` is what the task calls then, found by name by `program_tokens`, packed by
`payload`.
"""
