"""CUDA C++ kernels: sources, their compiler (NVRTC) and their launch. Importing this needs no GPU."""
