kansoku_script_test(docs.commands commands.py --kansoku ${kansoku_file})
kansoku_script_test(docs.rows rows.py ${CMAKE_BINARY_DIR} NEEDS KANSOKU_BPF !KANSOKU_SANITIZE !KANSOKU_FUZZ)
