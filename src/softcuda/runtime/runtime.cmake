# libcudart.so.12 and .13: one implementation, made twice, for two layouts of the interface. It finds the driver by itself, beside it or
# where the loader looks.
set(runtime_here ${CMAKE_CURRENT_LIST_DIR})
set(runtime_gen ${CMAKE_BINARY_DIR}/gen/softcuda/runtime)
set(runtime_include ${CMAKE_SOURCE_DIR}/share/softgpu/toolkit/include)
file(MAKE_DIRECTORY ${runtime_gen}/softcuda/runtime)
file(GLOB runtime_sources CONFIGURE_DEPENDS ${runtime_here}/*.cc ${runtime_here}/internal/*.cc)
file(GLOB runtime_tests CONFIGURE_DEPENDS ${runtime_here}/*_test.cc ${runtime_here}/*_for_test.cc)
list(FILTER runtime_sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
set(runtime_tool ${CMAKE_SOURCE_DIR}/tools/gen_cudart.py)

# kansoku_cudart_file(<verb...> FILE): one of the generated files.
function(kansoku_cudart_file file)
  add_custom_command(
    OUTPUT ${runtime_gen}/${file}
    COMMAND python3 ${runtime_tool} ${ARGN} ${runtime_gen}/${file}
    DEPENDS ${runtime_tool} ${runtime_here}/functions.txt ${runtime_include}/cuda_runtime_api.h ${runtime_include}/driver_types.h
            ${entry_table_tools} ${CMAKE_SOURCE_DIR}/src/cuda/interface/runtime.txt ${CMAKE_SOURCE_DIR}/src/cuda/abi.h ${runtime_sources})
endfunction()
kansoku_cudart_file(forwarders.cc source)
kansoku_cudart_file(softcuda/runtime/driver_functions.inc driver)
kansoku_cudart_file(softcuda/runtime/errors.inc errors)
kansoku_cudart_file(exports_12.map map 12)
kansoku_cudart_file(exports_13.map map 13)
set(runtime_generated ${runtime_gen}/forwarders.cc ${runtime_gen}/softcuda/runtime/driver_functions.inc
                      ${runtime_gen}/softcuda/runtime/errors.inc)
add_custom_target(softcuda_runtime_files DEPENDS ${runtime_generated} ${runtime_gen}/exports_12.map ${runtime_gen}/exports_13.map)

set(runtime_test_environment)
if(KANSOKU_SANITIZE)  # its dlopen stands between, and does not know the library's run path
  set(runtime_test_environment ENV LD_LIBRARY_PATH=${KANSOKU_SOFTGPU_DIR})
endif()
foreach(version 13000 12040)
  if(KANSOKU_FUZZ)
    break()
  endif()
  math(EXPR major "${version} / 1000")
  set(KANSOKU_GUEST_MAP ${runtime_gen}/exports_${major}.map)
  kansoku_stubs(runtime_${major} runtime ${version})
  kansoku_guest(softcuda_runtime_${major} libcudart.so.${major} ${runtime_sources} ${runtime_generated}
                ${CMAKE_BINARY_DIR}/gen/softcuda/runtime_${major}_stubs.cc)
  kansoku_stubbed(softcuda_runtime_${major} runtime_${major})
  unset(KANSOKU_GUEST_MAP)
  add_dependencies(softcuda_runtime_${major} softcuda_runtime_files)
  target_include_directories(softcuda_runtime_${major} PRIVATE ${runtime_gen} ${runtime_include})
  target_compile_definitions(softcuda_runtime_${major} PRIVATE CUDART_VERSION=${version})
  target_link_libraries(softcuda_runtime_${major} PRIVATE softcuda_telemetry fmt::fmt-header-only pthread ${CMAKE_DL_LIBS})
  # Two folders up where a program found it through a link in toolkit/lib64.
  set_target_properties(softcuda_runtime_${major} PROPERTIES BUILD_RPATH "$ORIGIN:$ORIGIN/../.."
                                                             INSTALL_RPATH "$ORIGIN:$ORIGIN/../..")
  add_dependencies(softcuda_runtime_${major} softcuda)
  add_dependencies(softgpu softcuda_runtime_${major})
  if(KANSOKU_TESTS)
    set(test softcuda_runtime_${major}_test)
    add_executable(${test} ${runtime_tests})
    target_include_directories(${test} PRIVATE ${CMAKE_SOURCE_DIR}/src ${runtime_include})
    target_compile_definitions(${test} PRIVATE CUDART_VERSION=${version})
    target_compile_options(${test} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    target_link_libraries(${test} PRIVATE softcuda_runtime_${major} cuda common fmt::fmt GTest::gmock GTest::gtest)
    kansoku_unit_tests(${test} softcuda_runtime_${major} ${runtime_test_environment})
  endif()
  if(major EQUAL 12)  # both make the link; this one has the last word
    add_dependencies(softcuda_runtime_12 softcuda_runtime_13)
  endif()
endforeach()

if(KANSOKU_TESTS)
  # The fuzz target has the runtime and the driver in itself.
  set(runtime_inside ${runtime_sources})
  list(FILTER runtime_inside EXCLUDE REGEX "driver_library\\.cc$")
  add_library(softcuda_cudart OBJECT ${runtime_inside} ${runtime_generated})
  add_dependencies(softcuda_cudart softcuda_runtime_files)
  target_include_directories(softcuda_cudart PUBLIC ${CMAKE_SOURCE_DIR}/src ${runtime_gen} ${runtime_include})
  target_compile_definitions(softcuda_cudart PUBLIC CUDART_VERSION=12040)
  target_link_libraries(softcuda_cudart PUBLIC softcuda_driver)
  # Both sides of the driver's C interface declare its types, so every call across would be reported.
  target_compile_options(softcuda_cudart PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  kansoku_fuzzer(runtime/runtime_fuzz.cc softcuda_cudart)
  target_link_libraries(softcuda_cudart_runtime_fuzz PRIVATE softcuda_driver cuda common)
  add_test(NAME softcuda_runtime.coverage_page COMMAND python3 ${runtime_tool} coverage --check)
endif()
