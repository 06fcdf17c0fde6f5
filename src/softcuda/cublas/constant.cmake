# cmake -D TEXT=FILE -D NAME=CONSTANT -D OUTPUT=FILE -P constant.cmake: a text as a string constant of C++.
file(READ ${TEXT} text)
file(WRITE ${OUTPUT} "inline constexpr char ${NAME}[] = R\"KANSOKU(${text})KANSOKU\";\n")
