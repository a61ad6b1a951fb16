"""Engines that move arrays and tables between processes and machines: one module and one install() each."""
