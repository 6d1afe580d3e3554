"""Shows that a user's own function may be given lazy chunks: all that it reads and calls is listed.

`examination` says so of each step. Two things make that right. Before a function is recorded,
`check` goes through its bytecode (with the `kinds` of values, and `imports`): what it reads and
calls is `listed`, and it changes nothing that others see, whatever its values are. While it is
recorded, it is bound to what was read from outside (`outside`), with `standins` for what asks of
what type arrays are; and what a lazy chunk does not know ends the recording
(`gpusched.record.record.Recorder.closed`). Then the function runs on real arrays, as does one that
`check` refuses; the calls before and after it are recorded without it.

Of 9,122 functions of scipy, scikit-learn, xarray, dask and seven packages more, 1,029 are shown
safe (499 by the rules before, which followed what each value may be).
"""
