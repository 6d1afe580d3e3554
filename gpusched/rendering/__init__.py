"""What people see: everything that is shown becomes text or HTML here.

`text` aligns columns. `html` makes tables, folded parts, fragments for notebooks and whole pages,
all in the styles of ``parts.css`` and ``page.css``; it escapes what it is given.
"""
