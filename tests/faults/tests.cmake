# The fault suite (make faults) runs for hours; that its truths are complete is seen at once.
kansoku_script_test(faults.check run.py --check)
