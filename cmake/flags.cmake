add_compile_options(
  -Wall -Wextra -Wpedantic -Wcast-qual -fno-omit-frame-pointer
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # Bit-equal results across machines: no contraction of a * b + c into one rounding.
  -ffp-contract=off
  -march=x86-64-v2)
if(CMAKE_UNITY_BUILD)
  # A local name may be one that another file of the batch keeps to itself; tools/check syntax looks at files one by one.
  add_compile_options($<$<OR:$<C_COMPILER_ID:GNU>,$<CXX_COMPILER_ID:GNU>>:-Wshadow=local>)
  # The compiler takes the files that are put together for headers, of which other files might see other types.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
else()
  add_compile_options(-Wshadow)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # It does not know the pragmas by which GCC unrolls loops over lanes, calls a captured constant unused that GCC asks for, and counts the
  # characters of generated texts.
  add_compile_options(-Wthread-safety -Wno-unknown-pragmas -Wno-unused-lambda-capture -Wno-overlength-strings)
endif()
# Indices out of bounds end the program, in release builds too: the input is hostile.
add_compile_definitions(_GLIBCXX_ASSERTIONS)
if(KANSOKU_WERROR)
  add_compile_options(-Werror)
endif()
if(KANSOKU_SANITIZE)
  add_compile_options(-fsanitize=${KANSOKU_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KANSOKU_SANITIZE})
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
