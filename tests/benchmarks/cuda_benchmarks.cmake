# ht_add_cuda_benchmarks(SUFFIX [objects and libraries]) adds cuda_benchmark and phase_cycle_benchmark, with the suffix.
set(cuda_benchmarks_folder ${CMAKE_CURRENT_LIST_DIR})
function(ht_add_cuda_benchmarks suffix)
  set(folder ${cuda_benchmarks_folder})
  add_executable(cuda_benchmark${suffix} ${folder}/cuda_benchmark.cpp ${folder}/program.cpp
    ${folder}/cuda/kernel_timing.cpp ${folder}/cuda/device_timer.cpp ${folder}/cuda/paper_timer.cpp
    ${folder}/cuda/step_table.cpp ${folder}/cuda/products.cpp ${folder}/cuda/rows.cpp
    ${folder}/cuda/decoder_rows.cpp ${folder}/cuda/scans.cpp ${folder}/cuda/four_bit.cpp ${folder}/cuda/mixture.cpp
    ${folder}/cuda/attention.cpp ${folder}/cuda/updates.cpp)
  add_executable(phase_cycle_benchmark${suffix} ${folder}/phase_cycle_benchmark.cpp ${folder}/program.cpp
    ${folder}/cuda/phase_cycle.cpp)
  foreach(program cuda_benchmark${suffix} phase_cycle_benchmark${suffix})
    target_compile_features(${program} PRIVATE cxx_std_20)
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${program} PRIVATE ${ARGN} hybrid_trainer::trainer)
    ht_compile_options(${program})
  endforeach()
endfunction()
