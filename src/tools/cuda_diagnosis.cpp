#include "src/tools/cuda_diagnosis.h"

#include <boost/json.hpp>
#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/kernels/machine_rates.h"

namespace hybrid_trainer {
namespace {

/// A problem without its leading name, which has already been printed.
std::string without_name(const std::string& problem, const std::string& name) {
  return problem.starts_with(name + ": ") ? problem.substr(name.size() + 2) : problem;
}

CudaDeviceDiagnosis diagnose_device(CudaRuntime& runtime, int index) {
  CudaDeviceDiagnosis found;
  try {
    found.properties = runtime.properties(index);
    const Stream stream(make_device_pool({DeviceType::kCuda, index}));
    found.fp32_flops_per_second = kernels::measure_product_rate(DType::kF32, stream);
    found.bf16_flops_per_second = kernels::measure_product_rate(DType::kBF16, stream);
    found.copy_bytes_per_second = kernels::measure_copy_rate(stream);
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

void print_device(const CudaDeviceDiagnosis& device, std::size_t index) {
  const CudaProperties& p = device.properties;
  std::printf("  cuda:%zu          %s, compute capability %d.%d, %d multiprocessors\n", index,
              p.name.c_str(), p.major, p.minor, p.processors);
  std::printf("                  memory %s, %s of it free\n", units::bytes(p.memory_bytes).c_str(),
              units::bytes(p.free_bytes).c_str());
  if (!device.problem.empty()) {
    std::printf("                  %s\n", device.problem.c_str());
    return;
  }
  std::printf("                  products FP32 %.1f, BF16 %.1f TFLOP/s; copying %.0f GB/s\n",
              1e-12 * device.fp32_flops_per_second, 1e-12 * device.bf16_flops_per_second,
              1e-9 * device.copy_bytes_per_second);
}

}  // namespace

CudaDiagnosis diagnose_cuda() {
  CudaDiagnosis found{.problem = look_for_cuda().problem,
                      .driver = {},
                      .runtime = {},
                      .devices = {},
                      .libraries = look_for_cuda_libraries()};
  CudaRuntime* const runtime = look_for_cuda().runtime;
  if (runtime == nullptr) return found;
  found.driver = runtime->driver_version();
  found.runtime = runtime->runtime_version();
  for (int i = 0; i < runtime->device_count(); ++i) {
    found.devices.push_back(diagnose_device(*runtime, i));
  }
  return found;
}

void print(const CudaDiagnosis& found) {
  if (found.problem.empty()) {
    std::printf("CUDA              driver serves %s, built for %s\n", found.driver.c_str(),
                found.runtime.c_str());
  } else {
    std::printf("CUDA              %s\n", without_name(found.problem, "CUDA").c_str());
  }
  for (std::size_t i = 0; i < found.devices.size(); ++i) print_device(found.devices[i], i);
  for (const CudaLibrary& library : found.libraries) {
    const std::string text = library.problem.empty() ? library.version + " at " + library.path
                                                     : without_name(library.problem, library.name);
    std::printf("  %-15s %s\n", library.name.c_str(), text.c_str());
  }
}

boost::json::object as_json(const CudaDiagnosis& found) {
  boost::json::array devices;
  for (const CudaDeviceDiagnosis& device : found.devices) {
    const CudaProperties& p = device.properties;
    devices.push_back({{"name", p.name},
                       {"compute_capability", concat(p.major, ".", p.minor)},
                       {"multiprocessors", p.processors},
                       {"memory_bytes", p.memory_bytes},
                       {"memory_free_bytes", p.free_bytes},
                       {"fp32_product_flops_per_second", device.fp32_flops_per_second},
                       {"bf16_product_flops_per_second", device.bf16_flops_per_second},
                       {"copy_bytes_per_second", device.copy_bytes_per_second},
                       {"problem", device.problem}});
  }
  boost::json::object libraries;
  for (const CudaLibrary& library : found.libraries) {
    libraries[library.name] = {{"found", library.found},
                               {"version", library.version},
                               {"path", library.path},
                               {"problem", library.problem}};
  }
  return {{"problem", found.problem},
          {"driver", found.driver},
          {"runtime", found.runtime},
          {"devices", devices},
          {"libraries", libraries}};
}

}  // namespace hybrid_trainer
