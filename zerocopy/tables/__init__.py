"""Tables: columns of any framework, and their conversion to tensors and to other tables.

==============  ======================================================================================
columns         ``column`` (`Column`, `Table`), ``arrow_column``, ``tensor_column``, ``object_column``;
                ``arrow_table``: tables known by protocol
memory          ``memory`` of Arrow, ``placement`` (device, allocation), ``hub``: the maker of Arrow arrays
options         ``options`` (checks), ``nulls`` and ``rows`` (nulls=), ``lists``, ``encoding`` (encode=),
                ``casting`` (dtype=), ``content`` (validate=)
conversion      ``planner``, then ``to_tables``, or ``to_tensors`` with ``decode``; ``matrix`` and
                ``records`` (layout=) put the decoded columns into one array
results         ``labels``: plans and errors of all columns; ``result``: `Masked` and `Encoded`
==============  ======================================================================================
"""
