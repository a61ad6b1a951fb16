"""Functions across frameworks: a function of one framework takes and returns the arrays of another."""
