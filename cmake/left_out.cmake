# The parts that a target lacks since a library or a tool is missing. They are named when the tree is configured, and again at the end of
# the target: its user sees no more than that.
# kansoku_left_out(<target> <part> <missing tool> <command that adds it>)
function(kansoku_left_out target part missing command)
  set(line "left out of ${target}: ${part}, since there is no ${missing}; to add it: ${command}")
  message(STATUS "${line}")
  file(APPEND ${CMAKE_BINARY_DIR}/${target}.left-out "${line}\n")
endfunction()
# kansoku_says_left_out(<target>): call it before the first kansoku_left_out() of the target. Gives in <target>_says the words that are a
# command of add_custom_target().
function(kansoku_says_left_out target)
  file(WRITE ${CMAKE_BINARY_DIR}/${target}.left-out "")
  set(${target}_says COMMAND ${CMAKE_COMMAND} -E cat ${CMAKE_BINARY_DIR}/${target}.left-out PARENT_SCOPE)
endfunction()
