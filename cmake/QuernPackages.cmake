# Third-party libraries, each as one imported target. The reason for each is in docs/decisions/0002-dependencies.md.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)  # nlohmann_json::nlohmann_json
find_package(CLI11 2.1 REQUIRED)           # CLI11::CLI11
find_package(fmt 9 REQUIRED)               # fmt::fmt-header-only
find_package(PkgConfig REQUIRED)

# quern_static_or_shared(target library header): an imported target that follows QUERN_STATIC.
function(quern_static_or_shared target library header)
  if(QUERN_STATIC)
    find_library(${target}_LIBRARY NAMES lib${library}.a REQUIRED)
  else()
    find_library(${target}_LIBRARY NAMES ${library} REQUIRED)
  endif()
  find_path(${target}_INCLUDE NAMES ${header} REQUIRED)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE})
endfunction()

quern_static_or_shared(quern_sqlite sqlite3 sqlite3.h)
target_link_libraries(quern_sqlite INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
quern_static_or_shared(quern_sodium sodium sodium.h)

if(QUERN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
