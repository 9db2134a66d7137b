# test_cuda runs the CUDA backend's code without a device: kernels as blocks of fibers, streams as threads. Where there is CUDA,
# test_cuda_device is the same tests on the device.
find_package(Boost 1.81 REQUIRED COMPONENTS context)
file(GLOB cuda_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*_test.cpp)
# Ranks by NCCL keep the contract of those on processors.
list(APPEND cuda_tests cuda/nccl_ranks.cpp distributed/rank_suite.cpp distributed/socket_ranks.cpp
     distributed/communicator_test.cpp distributed/ordered_reduction_test.cpp)
ht_keep_threaded_tests(cuda_tests)
add_library(cuda_tests OBJECT ${cuda_tests})
target_link_libraries(cuda_tests PRIVATE hybrid_trainer::tasks hybrid_trainer::run)
ht_test_target(cuda_tests)
file(GLOB emulation CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulation/*.cpp)
file(GLOB emulation_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/emulation/*_test.cpp)
list(REMOVE_ITEM emulation ${emulation_tests})
file(GLOB dispatch CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*/*.cpp)
list(FILTER dispatch EXCLUDE REGEX "_(cpu|cuda)\\.cpp$")
file(GLOB device_code CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*/*.cu)
# All of a product but cuBLASLt itself.
set(product_choice backend/launch_cuda.cpp products/algorithm_cache_cuda.cpp products/algorithm_choice_cuda.cpp)
list(TRANSFORM product_choice PREPEND ${PROJECT_SOURCE_DIR}/kernels/)
set_source_files_properties(${device_code} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -Wno-unknown-pragmas)

if(HT_SANITIZE STREQUAL "thread")
  # The sanitizer counts calls and returns by thread; fibers begin and end elsewhere than they are called.
  set_source_files_properties(emulation/block.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
endif()

if(HT_SANITIZE STREQUAL "address")
  # Device memory is poisoned for the host. The emulator may access it; for kernels the compiler calls emulation/access_checks.cpp.
  set_source_files_properties(${emulation} PROPERTIES COMPILE_OPTIONS "-O1;-fno-sanitize=address" SKIP_PRECOMPILE_HEADERS ON)
  set(checked -O1 -fno-sanitize=address -fsanitize=kernel-address -fsanitize-recover=kernel-address --param=asan-instrumentation-with-call-threshold=0
      --param=asan-stack=0 --param=asan-globals=0)
  set_source_files_properties(emulation/tensor_core.cpp PROPERTIES COMPILE_OPTIONS "${checked}")
  set_source_files_properties(${device_code} PROPERTIES COMPILE_OPTIONS "-Wno-unknown-pragmas;${checked}" SKIP_PRECOMPILE_HEADERS ON)
endif()

# Objects, not a library: they stand before the product's own of the same names.
add_library(cuda_emulation OBJECT ${emulation} ${dispatch} ${device_code}
            ${product_choice})
target_compile_definitions(cuda_emulation PRIVATE HT_WITH_CUDA)
target_compile_features(cuda_emulation PRIVATE cxx_std_20)
# In this order: tests/emulation/kernels has twins of the headers that only nvcc compiles.
target_include_directories(cuda_emulation PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/emulation ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_link_libraries(cuda_emulation PRIVATE hybrid_trainer::core Boost::context)
ht_compile_options(cuda_emulation)

ht_keep_threaded_tests(emulation_tests)
# The table of a step's kernels, whose completeness a test checks.
list(APPEND emulation_tests benchmarks/cuda/kernel_timing.cpp benchmarks/cuda/products.cpp benchmarks/cuda/rows.cpp
     benchmarks/cuda/attention.cpp benchmarks/cuda/updates.cpp)

ht_add_test_program(test_cuda SOURCES ${emulation_tests} $<TARGET_OBJECTS:cuda_emulation>
                    LIBRARIES cuda_tests hybrid_trainer::tasks hybrid_trainer::run test_runs Boost::context)
target_include_directories(test_cuda BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/emulation)
if(HT_SANITIZE STREQUAL "address")
  target_compile_definitions(cuda_emulation PRIVATE HT_POISONED_DEVICE)
  target_compile_definitions(test_cuda PRIVATE HT_POISONED_DEVICE)
endif()

# Opened in NCCL's place.
add_library(fake_nccl MODULE emulation/nccl/fake_nccl.cpp emulation/nccl/clique.cpp)
set_target_properties(fake_nccl PROPERTIES PREFIX "" OUTPUT_NAME libnccl SUFFIX .so.2 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake)
target_compile_features(fake_nccl PRIVATE cxx_std_20)
target_include_directories(fake_nccl PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(fake_nccl PRIVATE Threads::Threads)
ht_test_options(fake_nccl)
target_compile_definitions(cuda_emulation PRIVATE HT_FAKE_NCCL="${CMAKE_CURRENT_BINARY_DIR}/fake/libnccl.so.2")
add_dependencies(test_cuda fake_nccl)
if(HT_WITH_CUDA)
  ht_add_test_program(test_cuda_device AS_ONE SOURCES cuda/device/environment.cpp
                      LIBRARIES cuda_tests hybrid_trainer::tasks hybrid_trainer::run test_runs)
endif()

# The device's benchmarks at tiny sizes, so that every line of them is run.
include(benchmarks/cuda_benchmarks.cmake)
ht_add_cuda_benchmarks(_emulated $<TARGET_OBJECTS:cuda_emulation> Boost::context)
add_test(NAME CudaBenchmark.TimesEveryKernel COMMAND cuda_benchmark_emulated --scale small)
add_test(NAME CudaBenchmark.TimesPhaseCycle COMMAND phase_cycle_benchmark_emulated --scale small)
add_test(NAME CudaBenchmark.EstimatesStepFromRates COMMAND cuda_benchmark_emulated --paper h100)
set_tests_properties(CudaBenchmark.EstimatesStepFromRates PROPERTIES LABELS cuda PASS_REGULAR_EXPRESSION "sum .*\n[0-9]+ tokens a second")
set_tests_properties(CudaBenchmark.TimesEveryKernel CudaBenchmark.TimesPhaseCycle PROPERTIES TIMEOUT 120 LABELS cuda)
find_program(HT_PYTHON python3)  # which scripts/gpu_check.sh itself needs, on a GPU machine
if(HT_PYTHON)
  add_test(NAME GpuCheck.RunsAndResumesEachPart COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_gpu_check.sh
           $<TARGET_FILE:cuda_benchmark_emulated> $<TARGET_FILE:phase_cycle_benchmark_emulated> $<TARGET_FILE:test_cuda>)
  set_tests_properties(GpuCheck.RunsAndResumesEachPart PROPERTIES TIMEOUT 600 LABELS tools COST 50)
endif()
