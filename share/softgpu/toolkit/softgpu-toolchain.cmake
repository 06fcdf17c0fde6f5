# SPDX-License-Identifier: Apache-2.0
# A CMake toolchain file for CUDA without a toolkit of NVIDIA's:
#   cmake -DCMAKE_TOOLCHAIN_FILE=.../softgpu/toolkit/softgpu-toolchain.cmake ...
# `project(... LANGUAGES CUDA)` and find_package(CUDAToolkit) find this folder; programs run with `kansoku run --softgpu`.
set(KANSOKU_SOFTGPU_TOOLKIT ${CMAKE_CURRENT_LIST_DIR})
set(ENV{CUDA_PATH} ${KANSOKU_SOFTGPU_TOOLKIT})
set(CUDAToolkit_ROOT ${KANSOKU_SOFTGPU_TOOLKIT} CACHE PATH "folder shaped like a CUDA toolkit")
set(CMAKE_CUDA_COMPILER ${KANSOKU_SOFTGPU_TOOLKIT}/bin/softgpu-clang CACHE FILEPATH "clang with nvcc's options")
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 CACHE STRING "architectures of device code")
endif()
# A program is linked with a library that is linked with these: the linker looks for them, as it finds an installed driver's by itself.
foreach(kind EXE SHARED MODULE)
  string(APPEND CMAKE_${kind}_LINKER_FLAGS_INIT " -Wl,-rpath-link,${KANSOKU_SOFTGPU_TOOLKIT}/lib64:${KANSOKU_SOFTGPU_TOOLKIT}/lib64/stubs")
endforeach()
