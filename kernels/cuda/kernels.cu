// All kernels, in one unit for nvcc, for NVRTC and for the host compiler of the emulation.
#include "rows.cuh"
#include "linear.cuh"
#include "attention.cuh"
#include "candidates.cuh"
#include "growth.cuh"
#include "pruning.cuh"
#include "walk.cuh"
#include "measure.cuh"
