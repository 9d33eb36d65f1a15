// Warpgroup matrix multiply, for kernels compiled for sm_90a: apart from ptx.cuh, because no other architecture assembles it.
#pragma once

#include "ptx/ptx.cuh"

#if defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
#include "ptx/wgmma_device.cuh"
#else
#include "ptx/wgmma_host.cuh"
#endif
