if(KANSOKU_FUZZ)
  return()
endif()
# Files of `export --kineto` by the formulas of their readers.
set(activity ${CMAKE_SOURCE_DIR}/src/gpu/activity)
kansoku_test_program(cuda_recordings LINK gpu_activity trace common fmt::fmt
                     SOURCES cuda_recordings.cc ${activity}/planted_for_test.cc ${activity}/recording_for_test.cc
                             ${CMAKE_SOURCE_DIR}/src/trace/traces_for_test.cc)
kansoku_script_test(kineto.hta hta_test.py ${kansoku_file} $<TARGET_FILE:cuda_recordings>)
