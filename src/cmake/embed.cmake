# Turns files into strings of a layer's library: `page/live.js` becomes `extern const char k_live_js[]`, which the layer's HEADER
# declares. A raw string has at most 64 KiB.
function(ht_embed layer header)
  foreach(asset ${ARGN})
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${asset} content)
    get_filename_component(name ${asset} NAME)
    string(REPLACE "." "_" name ${name})
    string(APPEND definitions "const char k_${name}[] = R\"asset(${content})asset\";\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${asset})
  endforeach()
  get_filename_component(stem ${header} NAME_WE)
  file(CONFIGURE OUTPUT ${stem}.cpp @ONLY CONTENT [[
#include "@header@"

namespace hybrid_trainer {
@definitions@
}  // namespace hybrid_trainer
]])
  target_sources(hybrid_trainer_${layer} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${stem}.cpp)
endfunction()
