# Declares the backends of each kernel by its contract. A contract is a header x.h with functions `void f(…, const Stream& stream)`:
# FOLDER/kernels/generated/x.h declares them again in namespaces cpu and cuda. CMakeLists.txt includes this; it runs as a script too.
cmake_policy(VERSION 3.25)
set(top ${CMAKE_CURRENT_LIST_DIR}/..)
file(GLOB contracts ${top}/include/hybrid_trainer/kernels/*.h ${top}/kernels/*/*.h)
list(FILTER contracts EXCLUDE REGEX "_(cpu|cuda)\\.h$")
foreach(contract IN LISTS contracts)
  file(READ ${contract} text)
  string(REGEX MATCHALL "\nvoid [a-z0-9_]+\\([^;{]*const Stream& stream\\)" signatures "${text}")
  set(functions)
  foreach(signature IN LISTS signatures)
    string(REGEX REPLACE "^\nvoid ([a-z0-9_]+).*" "decltype(kernels::\\1) \\1" function "${signature}")
    string(APPEND functions "${function};\n")
  endforeach()
  if(functions)
    file(RELATIVE_PATH path ${top} ${contract})
    string(REGEX REPLACE "^include/" "" path ${path})
    get_filename_component(name ${contract} NAME)
    file(CONFIGURE OUTPUT ${FOLDER}/kernels/generated/${name} @ONLY CONTENT "#pragma once
#include \"${path}\"
namespace hybrid_trainer::kernels::cpu {
${functions}}
namespace hybrid_trainer::kernels::cuda {
${functions}}
")
  endif()
endforeach()
