kansoku_script_test(docs.commands commands.py --kansoku ${kansoku_file})
