# The checks that a GPU has to pass as well (docs/gpu-check.md), on the software device; and that each of them can fail.
foreach(step list can_fail)
  kansoku_program_test(gpu_check.${step} ${CMAKE_CURRENT_LIST_DIR}/gate.sh ${step} ${kansoku_file} ${CMAKE_CURRENT_BINARY_DIR}/gpu_check
                       NEEDS softcuda !KANSOKU_SANITIZE TIMEOUT 900 LABELS gpu-check LOCKS gpu_check_folder SOFTGPU)
endforeach()
if(TEST gpu_check.can_fail)
  set_property(TEST gpu_check.can_fail PROPERTY DEPENDS gpu_check.list)
endif()
