if(KANSOKU_FUZZ)
  return()
endif()
# Many synthetic hosts: through a real NATS server, and the collector's memory and time (figures in its output).
foreach(name hosts scale)
  kansoku_test_program(fleet_${name} SOURCES ${name}.cc ${CMAKE_SOURCE_DIR}/src/fleet/hosts_for_test.cc
                       LINK fleet sys stats common fmt::fmt)
endforeach()
kansoku_program_test(fleet.scale fleet_scale 500 3 TIMEOUT 300)
kansoku_script_test(fleet.collect collect.py ${kansoku_file} $<TARGET_FILE:fleet_hosts> TIMEOUT 300)
