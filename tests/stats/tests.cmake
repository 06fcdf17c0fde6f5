if(KANSOKU_FUZZ)
  return()
endif()
# Mixtures fitted to merged summaries of many hosts against those of all their rows; docs/measurements/edge-summaries.md has it at full size.
kansoku_test_program(summary_agreement SOURCES summary_agreement.cc LINK stats common fmt::fmt)
kansoku_program_test(stats.summary_agreement summary_agreement 30 2 500 TIMEOUT 600)
