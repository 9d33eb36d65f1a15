# What `cmake --install` puts under a prefix: the command, libquern.so with its header, the host target's plugin beside it, and how to find
# them with CMake and pkg-config. The tree may be moved afterwards. The C++ interface is not part of it (docs/decisions/0009-c-interface.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS quern RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS quern_c EXPORT quernTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET quern_host_plugin)
  # LLVM may lie where only its own path finds it.
  set_target_properties(quern_host_plugin PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS quern_host_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES include/quern/quern.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/quern)
configure_package_config_file(cmake/quernConfig.cmake.in ${CMAKE_BINARY_DIR}/package/quernConfig.cmake INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/quernConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT quernTargets NAMESPACE quern:: DESTINATION ${package_directory})
install(FILES ${CMAKE_BINARY_DIR}/package/quernConfig.cmake ${CMAKE_BINARY_DIR}/package/quernConfigVersion.cmake DESTINATION ${package_directory})

file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_to_include ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/quern.pc.in ${CMAKE_BINARY_DIR}/package/quern.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/quern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
