#include "src/tools/cuda_diagnosis.h"

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

void write(JsonWriter& out, const CudaDiagnosis& found) {
  out.begin_object("cuda");
  out.string("problem", found.problem);
  out.string("driver", found.driver);
  out.string("runtime", found.runtime);
  out.begin_array("devices");
  for (const CudaDeviceDiagnosis& device : found.devices) {
    const CudaProperties& p = device.properties;
    out.begin_object();
    out.string("name", p.name);
    out.string("compute_capability", concat(p.major, ".", p.minor));
    out.number("multiprocessors", p.processors);
    out.number("memory_bytes", p.memory_bytes);
    out.number("memory_free_bytes", p.free_bytes);
    out.number("fp32_product_flops_per_second", device.fp32_flops_per_second);
    out.number("bf16_product_flops_per_second", device.bf16_flops_per_second);
    out.number("copy_bytes_per_second", device.copy_bytes_per_second);
    out.string("problem", device.problem);
    out.end_object();
  }
  out.end_array();
  out.begin_object("libraries");
  for (const CudaLibrary& library : found.libraries) {
    out.begin_object(library.name.c_str());
    out.boolean("found", library.found);
    out.string("version", library.version);
    out.string("path", library.path);
    out.string("problem", library.problem);
    out.end_object();
  }
  out.end_object();
  out.end_object();
}

}  // namespace hybrid_trainer
