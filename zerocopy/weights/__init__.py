"""``open_weights``: the tensors of files of weights, mapped into memory and converted when they are used."""
