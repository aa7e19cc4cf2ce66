"""Kernels in C++, compiled on the machine that runs them; `build` makes and loads them."""
