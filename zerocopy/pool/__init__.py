"""One memory pool under every framework: :func:`zerocopy.install_pool`, device and host."""
