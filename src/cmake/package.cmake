# Installs the files with which find_package(hybrid_trainer) gives hybrid_trainer::trainer and the layers below it.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hybrid_trainer)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/hybrid_trainer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT hybrid_trainer NAMESPACE hybrid_trainer:: FILE hybrid_trainer-targets.cmake DESTINATION ${package_folder} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hybrid_trainer-config.cmake.in
  ${PROJECT_BINARY_DIR}/hybrid_trainer-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hybrid_trainer-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hybrid_trainer-config.cmake ${PROJECT_BINARY_DIR}/hybrid_trainer-config-version.cmake
  DESTINATION ${package_folder} COMPONENT dev)
