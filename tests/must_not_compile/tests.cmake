# Programs that the compiler must refuse: the strong types are strong.
kansoku_script_test(must_not_compile run.py --compiler ${CMAKE_CXX_COMPILER} TIMEOUT 300)
