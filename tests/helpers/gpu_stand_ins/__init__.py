"""CuPy, ``numba.cuda``, ``torch.cuda`` and JAX's CUDA backend over host memory, for tests/gpu without a GPU.

    PYTHONPATH=tests python -m pytest -p helpers.gpu_stand_ins.plugin tests/gpu/test_gpu_values.py

CuPy and Numba are stand-ins throughout; torch and JAX are the true ones for the CPU, with host
memory that they take for a device's. So the tests run, and the library makes the calls that it
would make. What is shown is that the tests are written right and that the calls are the right
ones. Nothing is shown of a GPU: all work is done when a call returns, so no order of streams
can be wrong, and what each framework does with a call is what these files say that it does.
"""
