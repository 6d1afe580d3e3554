"""Arrays of any library as headers and frames; one file per library, and four that they share.

`registration` is how distributed finds them, `messages` what is sent of arrays on the host,
`device` what of those in GPU memory, and `sealed_results` what one worker sends to another at a
time.
"""
