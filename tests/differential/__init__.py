"""Random user functions and array programs, computed by plain dask and by gpusched, and compared.

A case is the source text of a module with a function ``main(observe)``. Its seed decides all of
it, so a seed is enough to repeat a failure. ``python -m tests.differential --seconds 600`` looks
for new ones, and prints each as a script of its own.

==============  ==================================================================================
module          what it holds
==============  ==================================================================================
case            what a case is, and the texts that both generators write
templates       text files with the expressions, statements, helpers and calls, and their reader
bodies          writes the bodies of user functions
functions       the generator of programs around a user function
programs        the generator of array programs
running         a case is run once, and what it does is noted
comparing       two runs are compared
shrinking       a failing case is made smaller
report          a failing case becomes a script
campaign        many cases, counted
known           the defects that are known, in one table
==============  ==================================================================================
"""
