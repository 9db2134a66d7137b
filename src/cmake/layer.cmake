# One folder is one layer is one library: hybrid_trainer_<name>, seen by others as hybrid_trainer::<name>.
# Its sources are the .cpp files of the folder (and of its cpu/ folder); its DEPENDS list is the architecture.
include(warnings)

function(ht_add_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/cpu/*.cpp)
  add_library(hybrid_trainer_${name} STATIC ${sources})
  add_library(hybrid_trainer::${name} ALIAS hybrid_trainer_${name})
  set_target_properties(hybrid_trainer_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(hybrid_trainer_${name} PUBLIC cxx_std_20)
  target_include_directories(hybrid_trainer_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_include_directories(hybrid_trainer_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM arg_DEPENDS PREPEND hybrid_trainer::)
  foreach(dependency ${arg_DEPENDS})
    if(NOT TARGET ${dependency})
      list(REMOVE_ITEM arg_DEPENDS ${dependency})
    endif()
  endforeach()
  target_link_libraries(hybrid_trainer_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_LIBRARIES})
  ht_compile_options(hybrid_trainer_${name})
endfunction()
