# Read by cpack before it makes packages: without these programs it would make Debian packages that name no libraries.
if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(program dpkg-shlibdeps file)
    find_program(path_of_${program} ${program})
    if(NOT path_of_${program})
      message(FATAL_ERROR "cpack: the program ${program} is missing, by which a Debian package learns what it needs; as root: "
                          "apt-get install dpkg-dev file")
    endif()
  endforeach()
endif()
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/")  # bin, lib and share right in the archive's folder
endif()
