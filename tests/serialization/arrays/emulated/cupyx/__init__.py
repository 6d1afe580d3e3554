"""cupyx as far as `gpusched.serialization` uses it."""
