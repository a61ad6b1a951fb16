"""Tables: columns of any framework, and what becomes of them on the way to another.

``column`` and ``arrow_column``, ``tensor_column`` say what a column is; ``decode``
makes tensors of one, with ``nulls``; ``matrix`` and ``records`` are the layouts of
several; ``planner`` puts a conversion together.
"""
