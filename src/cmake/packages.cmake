# `cpack` makes three Debian packages, the tool, its plug-in for MPI and the library, and with `cpack -G TGZ` an archive
# that runs from any folder.
set(CPACK_PACKAGE_NAME hybrid-trainer)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "HybridTrainer contributors <hybrid-trainer@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train and fine-tune language models in phases")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL tool mpi dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME hybrid-trainer)
set(CPACK_DEBIAN_TOOL_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOL_PACKAGE_SUGGESTS hybrid-trainer-mpi)
set(CPACK_COMPONENT_TOOL_DESCRIPTION
    "train and fine-tune language models in phases
 The program hybrid trains language models from text and fine-tunes folders of
 Hugging Face and GGUF files, on CPUs and NVIDIA GPUs. It says before a run
 whether the run fits, and resumes it with the bits that it would have had.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME hybrid-trainer-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "hybrid-trainer (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_MPI_DESCRIPTION
    "train language models over several machines with MPI
 The plug-in lets the program hybrid run under mpirun.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libhybrid-trainer-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libdnnl-dev, libboost1.81-dev, libboost-json1.81-dev, libboost-program-options1.81-dev, libutf8proc-dev, libxxhash-dev, zlib1g-dev, libzstd-dev, libcereal-dev, libeigen3-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "train neural networks in phases, the C++ library
 Headers, static libraries and the files by which CMake finds them with
 find_package(hybrid_trainer).")

# What Debian wants to lie beside each package.
find_program(HT_GZIP gzip)
set(changelog ${PROJECT_BINARY_DIR}/changelog.gz)
if(HT_GZIP)
  execute_process(COMMAND ${HT_GZIP} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${changelog})
endif()
foreach(component tool mpi dev)
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME copyright COMPONENT ${component})
  install(FILES ${changelog} DESTINATION ${folder} COMPONENT ${component} OPTIONAL)
endforeach()
include(CPack)
