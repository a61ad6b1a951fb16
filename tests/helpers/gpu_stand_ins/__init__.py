"""CuPy, ``numba.cuda``, ``torch.cuda`` and JAX's CUDA backend over host memory, for tests/gpu without a GPU.

    PYTHONPATH=tests python -m pytest -p helpers.gpu_stand_ins.plugin tests/gpu/test_gpu_values.py

CuPy and Numba are replaced entirely. torch and JAX are the CPU builds, patched to treat some host
memory as device memory. The tests check that the GPU tests are correct and that zerocopy makes the
expected calls. They cannot check the behaviour of a GPU: all work has finished when a call returns,
so streams cannot be out of order, and the stand-ins define how each framework responds to a call.
"""
