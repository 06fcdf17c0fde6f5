kansoku_script_test(false_confidence.check run.py --check)
