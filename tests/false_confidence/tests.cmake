kansoku_script_test(false_confidence.check run.py --check)
# Files in others' forms, made from a model of a job: any answer that is not true of it.
kansoku_script_test(false_confidence.files run.py --files --kansoku ${kansoku_file} NEEDS !KANSOKU_FUZZ TIMEOUT 600)
