if(KANSOKU_FUZZ)
  return()
endif()
# Calls of generated functions, counted by themselves and by probes (all of them: make probe-eval).
kansoku_script_test(capture.bodies bodies/evaluate.py --kansoku ${kansoku_file} --bodies 200 NEEDS KANSOKU_BPF LIVE TIMEOUT 600)
# Recordings of two versions, made beside each other (beside.py).
kansoku_test_program(compare_recordings SOURCES compare_recordings.cc LINK trace sys common fmt::fmt)
