"""Tables: columns of any framework, and their conversion to tensors and to other tables.

``column``, ``arrow_column``, ``tensor_column`` and ``object_column`` describe columns;
``decode`` and ``nulls`` turn one into tensors; ``matrix`` and ``records`` combine
several; ``planner`` plans a conversion.
"""
