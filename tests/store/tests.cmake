if(KANSOKU_FUZZ)
  return()
endif()
# The memory that history costs: figures in the test's output, limits in docs/formats/history.md.
kansoku_test_program(history_memory SOURCES history_memory.cc DEFINE KANSOKU_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                     LINK store sys common fmt::fmt)
kansoku_program_test(store.history_memory history_memory NEEDS !KANSOKU_SANITIZE TIMEOUT 300)
