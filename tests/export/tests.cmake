if(KANSOKU_FUZZ)
  return()
endif()
# Real consumers read the exported metrics, where they are installed; and the dashboards' names are those of metrics.
kansoku_test_program(exporter SOURCES exporter.cc LINK export detect sys common fmt::fmt)
kansoku_script_test(export.dashboard dashboard.py $<TARGET_FILE:exporter>)
foreach(consumer promtool prometheus otlp webhook tls)
  kansoku_script_test(export.${consumer} consumers.py ${consumer} $<TARGET_FILE:exporter> TIMEOUT 180)
endforeach()
