# `cpack` makes three Debian packages, the tool, its plug-in for MPI and the library, and with `cpack -G TGZ` an archive
# that runs from any folder.
set(CPACK_PACKAGE_NAME hybrid-trainer)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "HybridTrainer contributors <hybrid-trainer@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train and fine-tune language models in phases")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/src/cmake/package_tools.cmake)
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
set(CPACK_COMPONENT_TOOL_DESCRIPTION "The program hybrid trains language models from text and fine-tunes folders of
Hugging Face and GGUF files, on CPUs and NVIDIA GPUs. It says before a run
whether the run fits, and resumes it with the bits that it would have had.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME hybrid-trainer-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "hybrid-trainer (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_COMPONENT_MPI_DESCRIPTION "The plug-in lets the program hybrid train one model on several machines, under
mpirun.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libhybrid-trainer-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libdnnl-dev, ocl-icd-opencl-dev, libboost1.81-dev, libboost-json1.81-dev, libboost-program-options1.81-dev, libutf8proc-dev, libxxhash-dev, libsodium-dev, libsnappy-dev, libpcre2-dev, zlib1g-dev, libzstd-dev, libpng-dev, libjpeg62-turbo-dev, libcereal-dev, libeigen3-dev")
if(HT_WITH_CUDA)
  set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS
      "cuda-toolkit-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR} | nvidia-cuda-toolkit")
endif()
set(CPACK_COMPONENT_DEV_DESCRIPTION "The library: headers, static archives and the files by which CMake finds them
with find_package(hybrid_trainer).")

# What Debian wants to lie beside each package.
set(changelog ${PROJECT_BINARY_DIR}/NEWS.gz)
execute_process(COMMAND gzip -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md OUTPUT_FILE ${changelog})
set(debian_changelog ${PROJECT_BINARY_DIR}/changelog.gz)
file(WRITE ${PROJECT_BINARY_DIR}/changelog "hybrid-trainer (${PROJECT_VERSION}) bookworm; urgency=medium

  * See NEWS.gz.

 -- ${CPACK_PACKAGE_CONTACT}  Sat, 28 Nov 2026 00:00:00 +0000
")
execute_process(COMMAND gzip -9nc ${PROJECT_BINARY_DIR}/changelog OUTPUT_FILE ${debian_changelog})
foreach(component tool mpi dev)
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME copyright COMPONENT ${component})
  install(FILES ${changelog} ${debian_changelog} DESTINATION ${folder} COMPONENT ${component} OPTIONAL)
endforeach()
include(CPack)
