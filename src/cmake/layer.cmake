# One folder is one layer is one library: hybrid_trainer_<name>, seen by others as hybrid_trainer::<name>.
# Its sources are the .cpp files of the folder and of its cpu/, families/ and experiments/ folders and of those named by FOLDERS, with CUDA also the .cpp and .cu files of its cuda/ folder
# in place of no_cuda.cpp. DEPENDS are the layers it uses, which is the
# architecture; LIBRARIES the third-party libraries it links, HEADERS those that are headers alone: neither is seen outside.
# A layer that READS_FILES of others compiles only if no number changes its type, or its sign, without a word: see core/narrow.h.
include(warnings)

# What nearly every source includes is parsed once.
file(CONFIGURE OUTPUT precompiled.cpp CONTENT "")
add_library(hybrid_trainer_precompiled OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp)
set_target_properties(hybrid_trainer_precompiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_features(hybrid_trainer_precompiled PRIVATE cxx_std_20)
target_precompile_headers(hybrid_trainer_precompiled PRIVATE <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map>
                          <memory> <optional> <sstream> <string> <string_view> <utility> <vector>)
ht_compile_options(hybrid_trainer_precompiled)

function(ht_add_layer name)
  cmake_parse_arguments(arg "READS_FILES" "" "DEPENDS;LIBRARIES;HEADERS;FOLDERS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/cpu/*.cpp
       ${CMAKE_CURRENT_SOURCE_DIR}/families/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/experiments/*.cpp)
  foreach(folder IN LISTS arg_FOLDERS)
    file(GLOB of_folder CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${of_folder})
  endforeach()
  if(HT_WITH_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
  endif()
  set_source_files_properties(no_cuda.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # tests put their own in its place
  set(layer hybrid_trainer_${name})
  add_library(${layer} STATIC ${sources} ${cuda_sources})
  add_library(hybrid_trainer::${name} ALIAS ${layer})
  set_target_properties(${layer} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${layer} PUBLIC cxx_std_20)
  target_include_directories(${layer} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${layer} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM arg_DEPENDS PREPEND hybrid_trainer::)
  target_link_libraries(${layer} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_LIBRARIES} "$<BUILD_INTERFACE:${arg_HEADERS}>")
  if(cuda_sources)
    # Only they see CUDA's headers: the layer's others are the same objects as in a build without it.
    list(FILTER cuda_sources INCLUDE REGEX "\\.cpp$")
    set_property(SOURCE ${cuda_sources} APPEND PROPERTY COMPILE_OPTIONS -isystem ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(${layer} PRIVATE $<LINK_ONLY:CUDA::cudart_static> ${CMAKE_DL_LIBS})
  endif()
  ht_compile_options(${layer})
  if(arg_READS_FILES)
    target_compile_options(${layer} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror=conversion -Werror=sign-conversion>)
  endif()
  target_precompile_headers(${layer} REUSE_FROM hybrid_trainer_precompiled)
  install(TARGETS ${layer} EXPORT hybrid_trainer ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endfunction()
