"""Arrays and tables between two hosts, which are network namespaces of this machine."""
