# Warnings, and the floating-point flags that let loops become vector code without changing any result:
# no errno from mathematics, no trapping; never -ffast-math, which would reorder sums and lose NaN.
function(ht_compile_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -fno-math-errno -fno-trapping-math>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=800000>)  # collects garbage later, which saves 8 % of the time
  if(HT_SANITIZE STREQUAL "thread")
    # The sanitizer does not see how OpenMP's threads wait for each other: loops run in one thread.
    target_compile_options(${target} PRIVATE -fopenmp-simd -g1)
    target_link_libraries(${target} PRIVATE gomp)
  else()
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  endif()
  if(NOT HT_SANITIZE STREQUAL "none")
    set(sanitizers ${HT_SANITIZE})
    if(HT_SANITIZE STREQUAL "address")
      set(sanitizers address,undefined)
    endif()
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    if(HT_SANITIZE STREQUAL "address")
      # Pointers are the address sanitizer's: checked twice, they made a quarter of the build's time.
      target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,vptr,object-size,alignment,nonnull-attribute,returns-nonnull-attribute>)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${sanitizers})
  endif()
endfunction()
