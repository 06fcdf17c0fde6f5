if(KANSOKU_FUZZ)
  return()
endif()
# Six placement policies against published curves, where the traces are: the means of ten seeds, and single runs.
foreach(name placement_golden placement_published)
  kansoku_test_program(${name} SOURCES ${name}.cc openb_data.cc published_random.cc LINK simulate_placement sys common fmt::fmt)
  kansoku_program_test(simulate.${name} ${name} ${CMAKE_SOURCE_DIR}/../shared/data TIMEOUT 300)
endforeach()

# The discrete-event engine against closed forms of queueing theory; its table is in the test's output.
find_package(Threads REQUIRED)
kansoku_test_program(simulate_exactness SOURCES exactness.cc LINK simulate_des common fmt::fmt Threads::Threads)
kansoku_program_test(simulate.exactness simulate_exactness TIMEOUT 1200)
# The examples print what the .txt beside them says.
foreach(example bank machine_shop gas_station carwash)
  set(example_source ${CMAKE_SOURCE_DIR}/examples/simulate/des/${example})
  kansoku_test_program(example_${example} SOURCES ${example_source}.cc LINK simulate_des common fmt::fmt)
  kansoku_script_test(simulate.example_${example} run_example.py $<TARGET_FILE:example_${example}> ${example_source}.txt)
endforeach()

# How well models of arrivals keep bursts (make simulate-eval); the smoke test only where the recording is at hand.
file(GLOB bursts_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/bursts_*.cc)
kansoku_test_program(bursts_eval SOURCES ${bursts_sources} LINK simulate_import simulate_workload stats common fmt::fmt)
set(philly ${CMAKE_SOURCE_DIR}/../shared/data/philly/philly_jobs_train.csv.gz)
if(EXISTS ${philly})
  kansoku_program_test(simulate.bursts_smoke
                       bash -c "set -o pipefail && gzip -dc ${philly} | $<TARGET_FILE:bursts_eval> - --seeds 3 --table 1" TIMEOUT 300)
  set_property(TEST simulate.bursts_smoke PROPERTY PASS_REGULAR_EXPRESSION "What is kept")
endif()

# The experiments of docs/simulation.md, short: every example runs, and what must hold does.
kansoku_script_test(simulate.experiments experiments.py ${kansoku_file} ${CMAKE_CURRENT_BINARY_DIR}/experiments --quick TIMEOUT 600)
