# kansoku_embed(<header> <namespace> <name> <file> [<name> <file>...]): a header with one string constant a file, made anew
# when a file changes.
function(kansoku_embed header namespace)
  set(content "// Generated from source files; do not edit.\n#pragma once\n#include <string_view>\nnamespace ${namespace} {\n")
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    string(APPEND content "inline constexpr std::string_view ${name} = R\"KANSOKU(${text})KANSOKU\";\n")
  endwhile()
  string(APPEND content "}  // namespace ${namespace}\n")
  file(CONFIGURE OUTPUT ${header} CONTENT "${content}" @ONLY)
endfunction()
