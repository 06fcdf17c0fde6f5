set(slow_input ${CMAKE_CURRENT_SOURCE_DIR}/data/recordings/slow_input.pftrace)
kansoku_script_test(report.screenshot screenshot.py ${kansoku_file} ${slow_input} 2 TIMEOUT 300)
kansoku_script_test(report.simulation simulation_screenshot.py ${kansoku_file} TIMEOUT 600)
kansoku_script_test(report.cuda cuda_screenshot.py ${kansoku_file} TIMEOUT 600)
