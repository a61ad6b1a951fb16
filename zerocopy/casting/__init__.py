"""``dtype=``: the option, and casts that refuse every value that does not fit."""
