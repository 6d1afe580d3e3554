"""Arrays of any library as headers and frames; one file per library."""
