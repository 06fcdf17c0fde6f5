# What a target does without where a library or a tool is missing. It is said when the tree is configured, and again at the end of the
# target, whose user sees no more than that.
# kansoku_left_out(<target> <what is left out> <what is missing> <the command that adds it>)
function(kansoku_left_out target what missing command)
  message(STATUS "left out of ${target}: ${what}, since there is no ${missing}; to add it: ${command}")
  file(APPEND ${CMAKE_BINARY_DIR}/${target}.left-out "left out of ${target}: ${what}, since there is no ${missing}; to add it: ${command}\n")
endfunction()
# kansoku_says_left_out(<target>): call it before the first kansoku_left_out() of the target. Gives in <target>_says the words that are a
# command of add_custom_target().
function(kansoku_says_left_out target)
  file(WRITE ${CMAKE_BINARY_DIR}/${target}.left-out "")
  set(${target}_says COMMAND ${CMAKE_COMMAND} -E cat ${CMAKE_BINARY_DIR}/${target}.left-out PARENT_SCOPE)
endfunction()
