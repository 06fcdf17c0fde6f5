kansoku_script_test(detect.recorded recorded.py ${kansoku_file} NEEDS !KANSOKU_FUZZ TIMEOUT 600)
kansoku_script_test(detect.judged judged.py ${kansoku_file} NEEDS !KANSOKU_FUZZ TIMEOUT 600)
