# A row of a manifest (tests/SUITE/tests.cmake):
#   kansoku_program_test(NAME COMMAND...  [words])   a program: a target's file, a path
#   kansoku_script_test(NAME SCRIPT ARG... [words])  a Python script beside the manifest
# Exit status 77 is a skip. Words:
#   NEEDS need...   no test without them: a target or a true variable each, `!VARIABLE` for a false one
#   TIMEOUT s  PROCESSORS n  COST n  LABELS ..  LOCKS ..  DEPENDS ..  FIXTURE_SETUP f  FIXTURE f   as ctest has them
#   LIVE            looks at programs while they run: beside no other such test, but beside those that only compute
#   TIER fast       also in `make test-fast`
#   SOFTGPU         the state of its software GPU lies in the build folder
#   ENV NAME=VALUE...
set(kansoku_file $<TARGET_FILE:kansoku>)
set(softgpu_state KANSOKU_SOFTGPU_DIR=${CMAKE_BINARY_DIR}/softgpu-state)

function(kansoku_program_test name)
  cmake_parse_arguments(T "LIVE;SOFTGPU" "TIMEOUT;PROCESSORS;COST;FIXTURE_SETUP;FIXTURE;TIER" "NEEDS;LABELS;LOCKS;DEPENDS;ENV" ${ARGN})
  foreach(need ${T_NEEDS})
    if(need MATCHES "^!(.*)")
      if(${CMAKE_MATCH_1})
        return()
      endif()
    elseif(NOT TARGET ${need} AND NOT ${need})
      return()
    endif()
  endforeach()
  if(T_SOFTGPU)
    list(APPEND T_ENV ${softgpu_state})
  endif()
  if(KANSOKU_SANITIZE)
    list(APPEND T_ENV KANSOKU_SANITIZE=${KANSOKU_SANITIZE})
  endif()
  if(T_LIVE)
    list(APPEND T_LOCKS live)
    set(T_COST 1000)  # they follow one another, so they begin at once; the others fill the second processor
  endif()
  if(T_TIER)
    list(APPEND T_LABELS ${T_TIER})
  endif()
  add_test(NAME ${name} COMMAND ${T_UNPARSED_ARGUMENTS})
  set_property(TEST ${name} PROPERTY SKIP_RETURN_CODE 77)
  foreach(pair TIMEOUT:TIMEOUT PROCESSORS:PROCESSORS FIXTURE_SETUP:FIXTURES_SETUP FIXTURE:FIXTURES_REQUIRED LABELS:LABELS
               LOCKS:RESOURCE_LOCK DEPENDS:DEPENDS ENV:ENVIRONMENT COST:COST)
    string(REPLACE ":" ";" pair ${pair})
    list(POP_FRONT pair word property)
    if(T_${word})
      set_property(TEST ${name} PROPERTY ${property} "${T_${word}}")
    endif()
  endforeach()
endfunction()

function(kansoku_script_test name script)
  get_filename_component(script ${script} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_LIST_DIR})
  kansoku_program_test(${name} /usr/bin/python3 ${script} ${ARGN})
endfunction()

# kansoku_test_program(TARGET SOURCES file... [LINK target...] [DEFINE NAME=VALUE...]): a program for tests; files beside the manifest,
# or by their whole path.
function(kansoku_test_program target)
  cmake_parse_arguments(P "" "" "SOURCES;LINK;DEFINE" ${ARGN})
  list(TRANSFORM P_SOURCES REPLACE "^([^/].*)" "${CMAKE_CURRENT_LIST_DIR}/\\1")
  add_executable(${target} ${P_SOURCES})
  target_compile_definitions(${target} PRIVATE ${P_DEFINE})
  target_link_libraries(${target} PRIVATE ${P_LINK})
endfunction()
