# Flags that every target of the project shares, and the two functions that declare targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The command and the plugin land side by side: build/<preset>/quern finds build/<preset>/libquern_host.so.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(quern_flags INTERFACE)
target_compile_options(quern_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(quern_flags INTERFACE -Wno-restrict)  # gcc 12 sees overlaps in std::string that are not there
endif()
if(QUERN_SANITIZE)
  target_compile_options(quern_flags INTERFACE -fsanitize=${QUERN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(quern_flags INTERFACE -fsanitize=${QUERN_SANITIZE})
  target_compile_definitions(quern_flags INTERFACE QUERN_SANITIZE="${QUERN_SANITIZE}")
endif()
if(QUERN_STATIC)
  target_link_options(quern_flags INTERFACE -static-libstdc++ -static-libgcc)
endif()

# quern_add_library(name SOURCES ... DEPENDS ... PRIVATE ...): a static library; DEPENDS is what its headers may include.
function(quern_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC quern_vocabulary ${ARG_DEPENDS} PRIVATE quern_flags ${ARG_PRIVATE})
endfunction()

# quern_add_test(name SOURCES ... DEPENDS ... [LABELS ...] [TIMEOUT s]): one GoogleTest executable, one CTest entry.
function(quern_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE quern_flags ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "QUERN_CACHE_DIR=${CMAKE_BINARY_DIR}/tests/store-${name};QUERN_HOST_PLUGIN=${CMAKE_BINARY_DIR}/libquern_host.so;${ARG_ENVIRONMENT}")
endfunction()
