# Programs of unit tests: how they are compiled, and how ctest runs them.

# Test files of a module are compiled together in batches of this size: then no compiler takes more than 1.5 GB.
set(KANSOKU_TEST_BATCH 10)

function(kansoku_test_flags target)
  target_include_directories(${target} SYSTEM PRIVATE ${CMAKE_BINARY_DIR}/gen)
  target_compile_definitions(${target} PRIVATE KANSOKU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  # A fifth less to compile; the libraries under test are optimised as ever.
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${KANSOKU_TEST_BATCH})
endfunction()

# The global property KANSOKU_FAST holds the programs of `make test-fast`.
#
# kansoku_unit_tests(<program> <prefix> [SEPARATE] [PROCESSORS n] [SHARDS n] [ENV NAME=VALUE...]): one ctest test named <prefix>.unit, one
# process. With SEPARATE each test of the program has a process, and ctest a test, of its own: for programs that keep state between tests.
# With SHARDS so many processes share the tests: for programs that mostly wait for the kernel. They begin first.
function(kansoku_unit_tests program prefix)
  cmake_parse_arguments(T "SEPARATE" "PROCESSORS;SHARDS" "ENV" ${ARGN})
  if(NOT T_PROCESSORS)
    set(T_PROCESSORS 1)
  endif()
  kansoku_test_flags(${program})
  if(T_SEPARATE)
    gtest_discover_tests(${program} TEST_PREFIX "${prefix}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS unit PROCESSORS ${T_PROCESSORS} ENVIRONMENT "${T_ENV}")
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY KANSOKU_FAST ${program})
  set(shards "")
  if(T_SHARDS)
    set(shards --processes=${T_SHARDS})
  endif()
  add_test(NAME ${prefix}.unit COMMAND /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tools/run_unit.py $<TARGET_FILE:${program}> ${shards})
  set_tests_properties(${prefix}.unit PROPERTIES LABELS "unit;fast" SKIP_RETURN_CODE 77 TIMEOUT 900 PROCESSORS ${T_PROCESSORS}
                                                 ENVIRONMENT "${T_ENV}")
  if(T_SHARDS)
    set_tests_properties(${prefix}.unit PROPERTIES COST 900)
  endif()
endfunction()
