kansoku_script_test(cuda_eval.check evaluate_test.py)
# A part of llama.cpp's CUDA backend, where `tests/llama/run.py build` has built it: what a person runs. Not with sanitizers, which the
# programs in its cache do not have.
foreach(check "operators 80 ADD MUL_MAT SOFT_MAX" "operators 61 ADD MUL_MAT" "numbers 80" "numbers 61 F32 Q4_0" "launches 80")
  separate_arguments(check)
  list(POP_FRONT check verb arch)
  kansoku_script_test(llama.${verb}_sm_${arch} run.py ${verb} --build lean-${arch} ${check} NEEDS softcuda KANSOKU_BPF !KANSOKU_SANITIZE
                      TIMEOUT 1800 LABELS llama ALONE SOFTGPU ENV KANSOKU=${kansoku_file} LAUNCH_HITS=$<TARGET_FILE:launch_hits>)
endforeach()
