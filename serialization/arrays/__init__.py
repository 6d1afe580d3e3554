"""Arrays of any library as headers and frames; one file per library, and three that they share.

`registration` is how distributed finds them, `messages` what is sent of arrays on the host, and
`device` what of those in GPU memory.
"""
