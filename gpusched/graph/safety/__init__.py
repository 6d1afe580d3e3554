"""Shows that a user's own function may be given lazy chunks: it runs in a closed world.

A function is recorded once, with lazy chunks, and its plan is run for other chunks. That is right
if two things hold:

- The function does the same for all chunks of a kind. What it reads and calls is on a list, or is a
  function of the user's for which the same holds; a plan is used only while what was read from
  outside is as it was; and what a lazy chunk does not know, such as its values, ends the recording
  (`gpusched.record.record.Recorder.closed`).
- It changes nothing that others see. So a recording may end anywhere: the function then runs on
  real arrays from its start, and the calls before and after it are recorded without it.

The bytecode shows what is read, called and changed, before anything is run. For that it is enough
to know which values a call has made itself; what values are, nobody asks. The modules, in the order
of calls:

- `examination`: which functions of a program's steps may be recorded, and why others may not.
- `check`: goes through the bytecode of a function, and of those that it calls.
- `instructions`: what each instruction does, with the `kinds` of what is on the stack.
- `exceptions`: handlers, without which functions are recorded.
- `listed`: what may be read, called and imported.
- `outside`: what was read from outside, and functions that are bound to it while they are recorded.
- `objects`: attributes of objects that Python alone finds.
- `standins`: what these read instead of functions that see what type an array is, or that would
  warn once and not for each chunk.
"""
