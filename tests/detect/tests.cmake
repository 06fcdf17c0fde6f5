# Labelled runs of a public data set through `kansoku detect`, where they are.
kansoku_script_test(detect.failslow failslow.py ${kansoku_file} NEEDS !KANSOKU_FUZZ TIMEOUT 300)
