file(GLOB selftests CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_LIST_DIR} ${CMAKE_CURRENT_LIST_DIR}/*_selftest.py)
foreach(selftest ${selftests})
  get_filename_component(name ${selftest} NAME_WE)
  kansoku_script_test(tools.${name} ${selftest} TIER fast)
endforeach()
kansoku_script_test(cuda.functions_inc ../../tools/gen_cuda_api.py --check)
# The tests that a change touches, again and again, on the processor that live tests leave free: FLAKY=1 in front of make test.
kansoku_program_test(flaky.changed ${CMAKE_CURRENT_LIST_DIR}/flaky.sh ${CMAKE_BINARY_DIR} COST 900 TIMEOUT 600)
