set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR {{ cookiecutter.board.cpu }})
set(CMAKE_C_COMPILER {{ cookiecutter.board.toolchain }})
set(CMAKE_C_COMPILER_WORKS TRUE)
set(CMAKE_C_FLAGS "" CACHE STRING "") # not the environment's CFLAGS: the results must not depend on them
