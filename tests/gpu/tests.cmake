if(KANSOKU_FUZZ)
  return()
endif()
# Every instruction form of the software device against exact arithmetic; the cases are written when the tests run.
kansoku_test_program(check_forms SOURCES check_forms.cc LINK gpu_exec fmt::fmt)
set(forms_folder ${CMAKE_CURRENT_BINARY_DIR}/forms)
kansoku_script_test(gpu.write_forms forms.py ${forms_folder} FIXTURE_SETUP forms)
kansoku_program_test(gpu.forms check_forms ${forms_folder} FIXTURE forms TIMEOUT 600)
kansoku_program_test(gpu.forms_mutated check_forms ${forms_folder} --mutate FIXTURE forms TIMEOUT 600)
kansoku_program_test(gpu.forms_planted check_forms ${forms_folder} --plant FIXTURE forms TIMEOUT 600)

# Texts that compilers wrote survive printing, in their order.
kansoku_test_program(check_texts SOURCES check_texts.cc LINK gpu_exec cuda sys fmt::fmt)
file(GLOB ptx_texts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/data/ptx/*.ptx)
kansoku_program_test(gpu.texts check_texts ${ptx_texts})

# The cases that every device has to pass: the software one, and a GPU where there is one.
set(gpu_defines KANSOKU_SOURCE_DIR="${CMAKE_SOURCE_DIR}" KANSOKU_SOFTGPU_LIBCUDA="$<TARGET_FILE:softcuda>")
kansoku_test_program(device_test SOURCES device_test.cc DEFINE ${gpu_defines} LINK cuda common fmt::fmt GTest::gmock GTest::gtest_main)
# One launch of `kansoku gpu run`, on devices that fail, say little or never end.
set(gpu_cli ${CMAKE_SOURCE_DIR}/src/cli/gpu)
kansoku_test_program(gpu_launch_test SOURCES gpu_launch_test.cc ${gpu_cli}/gpu_launch.cc ${gpu_cli}/gpu_arguments.cc DEFINE ${gpu_defines}
                     LINK cuda gpu_ptx sys common fmt::fmt GTest::gmock GTest::gtest_main)
foreach(program device gpu_launch)
  add_dependencies(${program}_test softcuda)
  kansoku_unit_tests(${program}_test gpu.${program} ENV ${softgpu_state} KANSOKU_SOFTGPU_MEMORY=1G)
endforeach()

# Uprobes on the driver's launch entry points against its own count.
if(KANSOKU_BPF)
  kansoku_test_program(launch_hits SOURCES launch_hits.cc LINK capture_bpf cuda sys common fmt::fmt ${CMAKE_DL_LIBS})
endif()
kansoku_program_test(gpu.launch_hits launch_hits $<TARGET_FILE:softcuda> NEEDS KANSOKU_BPF LIVE TIMEOUT 120)
# Calls of the driver seen from outside against what the executor ran: samples, Halide, llama.cpp, and attached to a running program.
kansoku_script_test(gpu.cuda_outside cuda_outside.py ${CMAKE_BINARY_DIR} NEEDS softcuda_cudart KANSOKU_BPF !KANSOKU_SANITIZE
                    LIVE TIMEOUT 900)
# Data-parallel training on the software device: the losses of one process, exact NCCL calls a rank.
kansoku_script_test(gpu.ddp ddp.py ${CMAKE_BINARY_DIR} NEEDS softgpu_nccl LIVE TIMEOUT 600)
