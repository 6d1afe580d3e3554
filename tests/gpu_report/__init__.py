"""`make gpu-report`: what gpusched does on this machine's GPU, measured step by step.

For a card that is lent for half an hour: each step runs in a process of its own with a limit, so
that no error, crash or hang takes the others along; each leaves a line in results.jsonl as soon as
it is over; nothing needs a network. Steps that may explain the others come first, then those that
are timed, each with the machine to itself, then the others at once.
"""
