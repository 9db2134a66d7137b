# One folder is one layer is one library: hybrid_trainer_<name>, seen by others as hybrid_trainer::<name>.
# Its sources are the .cpp files of the folder and of the folders in it. With CUDA, *.cu, *_cuda.cpp and cuda/*.cpp take the place of no_cuda.cpp.
# DEPENDS are the layers that it uses, which is the architecture: tests/architecture_test.cpp compares it with the includes.
# LIBRARIES are the third-party libraries that it links, HEADERS those that are headers alone: neither is seen outside.
# A layer that computes little takes two thirds of the time to compile with LIGHTLY_OPTIMIZED.
# In a layer that READS_FILES a number that changes its type or sign without narrow (src/core/narrow.h) is an error.
include(warnings)

# What nearly every source includes is parsed once, and Boost's JSON with it for the layers that link that.
file(CONFIGURE OUTPUT precompiled.cpp CONTENT "")
foreach(name hybrid_trainer_precompiled hybrid_trainer_precompiled_json)
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <deque>
                            <filesystem> <functional> <map> <memory> <mutex> <numeric> <optional> <span> <sstream> <string>
                            <string_view> <thread> <unordered_map> <utility> <variant> <vector>)
  ht_compile_options(${name})
endforeach()
target_precompile_headers(hybrid_trainer_precompiled_json PRIVATE <boost/json.hpp>)
target_link_libraries(hybrid_trainer_precompiled_json PRIVATE Boost::json)

function(ht_add_layer name)
  cmake_parse_arguments(arg "LIGHTLY_OPTIMIZED;READS_FILES" "" "DEPENDS;LIBRARIES;HEADERS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS *.cu *_cuda.cpp)
  file(GLOB of_cuda_folder CONFIGURE_DEPENDS cuda/*.cpp)
  list(APPEND cuda_sources ${of_cuda_folder})
  list(FILTER cuda_sources EXCLUDE REGEX "/no_cuda\\.cpp$")
  if(cuda_sources)
    list(REMOVE_ITEM sources ${cuda_sources})
  endif()
  list(FILTER sources EXCLUDE REGEX "/mpi/[^/]*$")  # a plug-in of its own
  if(HT_WITH_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
  else()
    set(cuda_sources)
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
  if(arg_LIGHTLY_OPTIMIZED)
    target_compile_options(${layer} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(arg_READS_FILES)
    target_compile_options(${layer} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror=conversion -Werror=sign-conversion>)
  endif()
  if(Boost::json IN_LIST arg_LIBRARIES)
    target_precompile_headers(${layer} REUSE_FROM hybrid_trainer_precompiled_json)
  else()
    target_precompile_headers(${layer} REUSE_FROM hybrid_trainer_precompiled)
  endif()
  install(TARGETS ${layer} EXPORT hybrid_trainer ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endfunction()
