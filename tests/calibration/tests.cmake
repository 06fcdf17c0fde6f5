kansoku_script_test(calibration.check run.py --check TIER fast)
