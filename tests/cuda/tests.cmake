if(KANSOKU_FUZZ)
  return()
endif()
set(toolkit_include ${CMAKE_SOURCE_DIR}/share/softgpu/toolkit/include)
# The library inside a CUDA process, before the software device.
kansoku_test_program(cuda_library_test
                     SOURCES chains_test.cc copies_test.cc graph_nodes_test.cc library_test.cc ranges_test.cc stacks_test.cc
                     DEFINE KANSOKU_CUDA_LIBRARY="$<TARGET_FILE:kansoku_cuda>" KANSOKU_NULL_DRIVER="$<TARGET_FILE:null_driver>"
                            KANSOKU_SOFTCUDA_LIBRARY="$<TARGET_FILE:softcuda>"
                     LINK capture capture_cuda cuda fmt::fmt GTest::gmock GTest::gtest_main ${CMAKE_DL_LIBS})
add_dependencies(cuda_library_test kansoku_cuda null_driver softcuda)
# The library is one a process, with a thread of its own beside the test's: so each test has a process.
kansoku_unit_tests(cuda_library_test cuda_library SEPARATE)
# A program that writes down itself what it does when; the software device serves it.
kansoku_test_program(cuda_planned SOURCES planned.c LINK ${CMAKE_DL_LIBS} pthread)
# Ranges of NVTX around launches: with the software GPU's header, and with NVIDIA's where -D NVTX_INCLUDE=FOLDER names it.
kansoku_test_program(cuda_ranges SOURCES ranges.c LINK ${CMAKE_DL_LIBS} pthread)
set(range_programs cuda_ranges)
set(NVTX_INCLUDE "" CACHE PATH "folder that holds nvtx3/ of NVIDIA")
if(NVTX_INCLUDE)
  kansoku_test_program(cuda_ranges_real SOURCES ranges.c DEFINE "NVTX_HEADER=\"${NVTX_INCLUDE}/nvtx3/nvToolsExt.h\""
                       LINK ${CMAKE_DL_LIBS} pthread)
  list(APPEND range_programs cuda_ranges_real)
endif()
foreach(program cuda_library_test cuda_planned ${range_programs})
  target_include_directories(${program} SYSTEM PRIVATE ${toolkit_include})
endforeach()
list(TRANSFORM range_programs REPLACE "(.+)" "$<TARGET_FILE:\\1>")

# Each row has a folder of its own and its lock.
function(cuda_script_test name script folder)
  kansoku_script_test(cuda_library.${name} ${script} ${kansoku_file} ${ARGN} TIMEOUT 900 LOCKS ${folder}_folder
                      SOFTGPU ENV KANSOKU=${kansoku_file})
endfunction()
set(compile_samples ${CMAKE_SOURCE_DIR}/share/softgpu/softgpu-clang ${CMAKE_SOURCE_DIR}/examples/cuda_samples)
set(out ${CMAKE_CURRENT_BINARY_DIR})
# The counts are those of the executor.
cuda_script_test(exact exact.py cuda_exact ${compile_samples} ${out}/cuda_exact)
# A program whose driver fails behaves as without it.
cuda_script_test(faults faults.py cuda_faults ${compile_samples} ${out}/cuda_faults)
# Under the model clock each begin and end is the executor's.
cuda_script_test(boundaries boundaries.py cuda_boundaries ${compile_samples} ${out}/cuda_boundaries)
# Issue latency, waits and causes of idle time are those that a program saw itself.
cuda_script_test(causes_by_plan causes_by_plan.py cuda_causes_by_plan $<TARGET_FILE:cuda_planned> ${out}/cuda_causes_by_plan)
# exec in mid-launch, two processes, a driver by its path, a container.
cuda_script_test(odd_processes odd_processes.py cuda_odd_processes $<TARGET_FILE:cuda_planned> ${out}/cuda_odd_processes)
cuda_script_test(ranges ranges.py cuda_ranges ${out}/cuda_ranges_out ${range_programs})
# A kernel that never ends is named with its rank and stack; a slow one is not. Its ranks are Python, which loads the driver while it runs.
kansoku_script_test(cuda_library.stuck stuck/evaluate.py gate --kansoku ${kansoku_file} --keep ${out}/cuda_stuck
                    NEEDS !KANSOKU_SANITIZE LIVE TIMEOUT 900 LOCKS cuda_stuck_folder)
# No all-clear of a kernel that began while the library slept, and none of them called stuck that only takes its time.
kansoku_script_test(cuda_library.woken stuck/woken.py --only default-copy-0-1 nonblocking-stream-3-0 --kansoku ${kansoku_file}
                    NEEDS !KANSOKU_SANITIZE LIVE TIMEOUT 600)
# Causes that no load can change are named in live recordings, their twins are not; causes/evaluate.py has the others.
kansoku_script_test(cuda_library.causes causes/evaluate.py gate --plain --kansoku ${kansoku_file} TIMEOUT 900)
# The driver keeps its promises with every operation timed, too.
kansoku_program_test(cuda_library.driver_suite ${kansoku_file} record -q --no-bpf --cuda --force -o ${out}/driver_suite.pftrace
                     -- $<TARGET_FILE:softcuda_test> TIMEOUT 600 LOCKS driver_suite_file
                     ENV KANSOKU_TEST_LIBCUDA=$<TARGET_FILE:kansoku_cuda> KANSOKU_CUDA_DRIVER=$<TARGET_FILE:softcuda>)
