"""How generated kernels are scheduled: sizes by which loops are divided, bounds on when they are.

Each was measured, or follows from the hardware as it says. This file is part of the key of compiled
kernels (`gpusched.store.emitters`), so that a change takes effect at once. What `gpusched.tune`
chooses for one kernel instead is in `gpusched.emit.choices`.
"""

from __future__ import annotations

# Which kernels there are, and what each computes

REPEATS = 16
"""How often a kernel would compute each element of an operand, for that to be done before."""

WORTHWHILE = 1 << 16
"""Elements of a kernel's results below which a launch more costs more than it saves."""

STREAMED = 4 << 20
"""Bytes of results from which on they are written past the caches, where none of them would stay
until it is read."""

NARROWEST = 64
"""Elements along an axis of what is inside one array; less counts as across."""

LEAST_JOINED = 1 << 18
"""Bytes of what would be joined for each call of the kernel at least: a call, with what prepares
it, takes as long as copying some of that."""

LEAST_FREED = 1 << 18
"""Bytes that are let go of by computing something at once, rather than with what comes later: as
much is moved in the time of a call."""

TILE_ROWS = 8
"""Rows of a tile are a multiple of this, so that kernels that join several at once join the same
ones as in a whole chunk."""

USUAL_CACHE = 1 << 20
"""Bytes of a second-level cache where nothing states it."""

LONGEST_LANE = 1 << 17
"""Elements of a lane from which on NumPy's partition is no slower than to count them again and
again, since they do not stay in the cache meanwhile."""

# Loops of kernels on CPUs

WIDEST = 512
"""Bits of the vectors that loops use on CPUs, as far as the processor has them. LLVM itself
takes half of that where vectors are widest; most memory-bound loops do not mind, and polynomials
take twice as long."""

BLOCK = 128
"""Elements that a kernel computes in one go if it waits for memory."""

PART = 512
"""Elements that a heavy kernel computes in one go, so that its loop is long enough, and one whose
partial results are exact."""

ROOM = 1024
"""Elements of a result that there is room for on the stack, so few that they stay in the cache: a
streamed kernel computes no more in one go. Windows along contiguous elements have half of it."""

AHEAD = 1024
"""Bytes that inputs are asked for ahead of a block, in long rows."""

LONG_ROW = 32768
"""Bytes of a row from which on the next one, asked for now, would leave the cache unused."""

PLACES = 4
"""Places of an input that blocks are taken from in turn."""

JOINED_ROWS = 8
"""Rows that are joined at once: one by one, deviations of columns take three times as long. Of
windows that have fewer, all are: weighted means of 7 days each take 0.6 of the time (AMD EPYC)."""

SHORT_ROW, LONG_RESULT = 256, 8192
"""Bytes of a row that is read beyond which, and of what it is joined to up to which, rows are
joined one by one all the same. Memory is read as fast as it can be in its order; rows of less than
a page, some at once, keep the processor from seeing what comes next, while longer results do not
stay in the nearest cache from one row to the next. Sums of 100 columns took 17 ms instead of 30
(NumPy: 20), and deviations 29 instead of 41 (40 million float64, AMD EPYC)."""

MANY_ROWS = 64
"""Rows of which moments are known from which on short ones are joined one by one, too."""

STATEMENTS = 64
"""The most statements of joined rows together: fewer rows are joined at once of a longer `point`.
Ten results of two fields with gaps, 31 operations, took 1.4 times as long where rows of more than 8
were joined one by one: each result was read and written again for each row (AMD EPYC)."""

FIRST_VALUES = 64
"""Values of a row whose mean is what the first block is taken off; one that is unlike all others
would cost as many digits as the block has."""

LABELLED_ROWS = 4
"""Rows of one label that are joined at once where they follow each other: sums and counts of 365
days of 10,609 places by month took 2.1 ms instead of 3.2, by week 2.6 (with eight 3.3), and days
that each have another label than the day before 3.5 instead of 3.3 (AMD EPYC)."""

LABELLED_COLUMNS = 4096
"""Columns whose rows are joined before the next columns: so few that the results of some dozen
labels stay in the cache. Those sums took 1.7 ms so, 2.2 and 2.8, instead of 2.1, 2.6 and 3.5 with
1,024 columns."""

LABELLED_LANES = 8
"""Such columns where the elements of each are next to each other: a line of the cache of each
stays in it until all of it has been joined. Sums and counts of 365 days of 2,500 places by month
took 0.9 ms on an AMD EPYC, where one place after the other took 3.5 ms; of 512 days 1.4 and 4.9 ms,
and with 16 columns 2.9 ms, since lines are then in each other's places."""

WINDOW_ROWS = 4
"""Rows of a window from which on what windows have in common is joined once for them."""

WINDOW_COLUMNS = 256
"""Columns of windows that are joined before the next ones, so that what a row is read for again is
in the cache."""

# Blocks and threads of kernels on GPUs

THREADS = 256
"""Threads of a block, unless somebody has chosen otherwise."""

VECTOR = 16
"""Bytes of the widest load or store of one thread."""

LONGEST = 64
"""Instructions beyond which `point` is not repeated to have more loads under way."""

SCANNED_BLOCK = 256
"""Elements of a scan that one thread joins where there are few lanes. So few lines of memory are
read at a time, one by each thread, that they stay in the cache until all of each has been joined;
not measured on a card."""

SPLIT_BLOCKS = 1024
"""Blocks that a reduction is split into where its results are few."""

LEAST_LOADS = 8
"""Loads a thread must be left with for a split, which costs a second launch."""

ROW_BLOCKS = 1 << 12
"""Blocks beyond which a thread of a nest takes several rows."""

LANES = 32
"""Neighbouring threads that read memory together on a GPU; as many such groups keep one busy."""
