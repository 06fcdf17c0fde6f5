# A live llama.cpp against the truth of tests/llm: the prebuilt libraries on the processor, the CUDA backend where it is built.
function(llm_test name script)
  kansoku_script_test(llm.${name} ${script} ${ARGN} NEEDS KANSOKU_BPF !KANSOKU_SANITIZE !KANSOKU_FUZZ
                      TIMEOUT 900 LABELS llama LIVE SOFTGPU ENV KANSOKU=${kansoku_file})
endfunction()
llm_test(prebuilt exact.py prebuilt)
llm_test(selftest exact.py selftest)
llm_test(releases releases.py)
llm_test(device device.py)
kansoku_script_test(llm.unlinked unlinked.py --kansoku ${kansoku_file} NEEDS KANSOKU_BPF !KANSOKU_SANITIZE !KANSOKU_FUZZ TIMEOUT 300 LIVE)
