kansoku_script_test(cuda_eval.check evaluate_test.py)
# kansoku_once_test(NAME SCRIPT PATHS path... WITH arg... [words]): a script that runs once for each state of these paths.
function(kansoku_once_test name script)
  cmake_parse_arguments(O "" "" "PATHS;WITH" ${ARGN})
  kansoku_program_test(${name} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tools/once.py ${name} ${O_PATHS} -- /usr/bin/python3
                       ${CMAKE_SOURCE_DIR}/tests/${script} ${O_WITH} ${O_UNPARSED_ARGUMENTS})
endfunction()
set(softgpu_paths src/common src/cuda src/gpu/exec src/gpu/ptx src/softcuda src/sys share/softgpu cmake CMakePresets.json)
# A part of llama.cpp's CUDA backend, where `tests/llama/run.py build` has built it: what a person runs. Not with sanitizers, which the
# programs in its cache do not have.
foreach(check "operators 80 ADD MUL_MAT SOFT_MAX" "operators 61 ADD MUL_MAT" "numbers 80" "numbers 61 F32 Q4_0" "launches 80")
  separate_arguments(check)
  list(POP_FRONT check verb arch)
  kansoku_once_test(llama.${verb}_sm_${arch} llama/run.py
                    PATHS ${softgpu_paths} src/capture/bpf src/cli/gpu src/wire tests/gpu/launch_hits.cc tests/kit tests/llama
                    WITH ${verb} --build lean-${arch} ${check} NEEDS softcuda KANSOKU_BPF !KANSOKU_SANITIZE
                    TIMEOUT 1800 LABELS llama LIVE SOFTGPU ENV KANSOKU=${kansoku_file} LAUNCH_HITS=$<TARGET_FILE:launch_hits>)
endforeach()
