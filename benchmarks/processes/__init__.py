"""Objects between processes: pickle, shared memory, and the engines that zerocopy.integrations connects."""
