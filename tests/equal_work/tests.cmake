# The suite (make equal-work) runs for hours; that its scores are right is seen at once.
kansoku_script_test(equal_work.score score.py TIER fast)
