#include <unistd.h>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "kernels/backend/machine.h"
#include "src/core/cuda_runtime.h"
#include "src/core/libraries.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/distributed/decorated_communicator.h"
#include "src/distributed/launched_rank.h"
#include "src/files/json.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/train/local_ranks.h"
#include "src/tools/waiting_threads.h"

namespace hybrid_trainer {

namespace {

struct CudaDeviceDiagnosis {
  CudaProperties properties;
  double fp32_flops_per_second = 0;
  double bf16_flops_per_second = 0;
  double copy_bytes_per_second = 0;
  std::string problem;  // why the device could not be measured, or ""
};

struct CudaDiagnosis {
  std::string problem;  // why CUDA is not available and how to fix that, or ""
  std::string driver{}, runtime{};
  std::vector<CudaDeviceDiagnosis> devices{};
  std::vector<CudaLibrary> libraries;
};

/// Removes a leading name that has already been printed.
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
  std::printf("                  products FP32 %.1f, BF16 %.1f TFLOP/s; copy %.0f GB/s\n",
              1e-12 * device.fp32_flops_per_second, 1e-12 * device.bf16_flops_per_second,
              1e-9 * device.copy_bytes_per_second);
}

/// Looks for driver, devices and libraries, and measures each device. Device errors do not throw.
CudaDiagnosis diagnose_cuda() {
  CudaDiagnosis found{.problem = find_cuda().problem, .libraries = find_cuda_libraries()};
  CudaRuntime* const runtime = find_cuda().runtime;
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
    std::printf("CUDA              driver supports %s, built for %s\n", found.driver.c_str(),
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

/// Measures the link between the ranks; rank 0 prints it. Throws like start_launched_rank.
int diagnose_ranks(const LaunchedRank& launched, bool json) {
  JobSecret secret(launched.rank,
                   secret_of_launcher([](const char* name) { return std::getenv(name); }), {});
  const std::unique_ptr<Communicator> ranks = start_launched_rank(launched, {}, secret);
  const Stream stream(make_device_pool());
  const LinkSpeed link = measure_link(*ranks, stream);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::vector<std::string> names = ranks->host_gather(host);
  if (ranks->rank() != 0) return 0;
  const auto hosts = static_cast<std::int64_t>(std::set(names.begin(), names.end()).size());
  if (json) {
    const boost::json::object line{{"ranks", ranks->size()},
                                   {"hosts", hosts},
                                   {"backend", ranks->name()},
                                   {"link_bytes_per_second", link.bytes_per_second},
                                   {"link_latency_seconds", link.latency.count()}};
    std::cout << json_line(line) << "\n";
    return 0;
  }
  std::printf("ranks             %d by %s, on %s\n", ranks->size(), ranks->name(),
              hosts == 1 ? "one host" : concat(hosts, " hosts").c_str());
  std::printf("link              %s per second from each rank, all ranks in parallel\n",
              units::bytes(static_cast<std::size_t>(link.bytes_per_second)).c_str());
  std::printf("a barrier         %.1f us\n", 1e6 * link.latency.count());
  return 0;
}

constexpr std::pair<const char*, const char*> kLibraries[] = {
    {"oneDNN", HT_ONEDNN_VERSION},      {"Boost", HT_BOOST_VERSION},
    {"utf8proc", HT_UTF8PROC_VERSION},  {"Eigen", HT_EIGEN_VERSION},
    {"zlib", HT_ZLIB_VERSION},          {"zstd", HT_ZSTD_VERSION},
    {"snappy", HT_SNAPPY_VERSION},      {"libpng", HT_PNG_VERSION},
    {"libjpeg-turbo", HT_JPEG_VERSION}, {"PCRE2", HT_PCRE2_VERSION},
    {"cereal", HT_CEREAL_VERSION},      {"compiler", HT_COMPILER}};

struct Diagnosis {
  ProcessorInfo processor = processor_info();
  std::optional<double> quota = processor_quota();
  MachineMemory memory = machine_memory();
  std::size_t disk_free_bytes = 0;  // disk space of the current folder
  double fp32_flops_per_second = 0;
  double bf16_flops_per_second = 0;
  double copy_bytes_per_second = 0;
  double read_bytes_per_second = 0;
  CudaDiagnosis cuda = diagnose_cuda();
};

Diagnosis diagnose() {
  set_default_threads();
  const Stream stream(make_device_pool());
  Diagnosis found;
  std::error_code unknown;
  const auto space = std::filesystem::space(".", unknown);
  if (!unknown) found.disk_free_bytes = space.available;
  found.fp32_flops_per_second = kernels::measure_product_rate(DType::kF32, stream);
  found.bf16_flops_per_second = kernels::measure_product_rate(DType::kBF16, stream);
  found.copy_bytes_per_second = kernels::measure_copy_rate(stream);
  found.read_bytes_per_second = kernels::measure_read_rate(stream);
  return found;
}

std::string as_json(const Diagnosis& found) {
  boost::json::object libraries;
  for (const auto& [name, version] : kLibraries) libraries[name] = version;
  return json_line({{"version", project_version()},
                    {"processor", found.processor.name},
                    {"cores", found.processor.cores},
                    {"quota_cores", found.quota ? boost::json::value(*found.quota) : nullptr},
                    {"threads", threads()},
                    {"waiting", waiting_of_threads()},
                    {"instruction_set", name_of(instruction_set())},
                    {"multiplies_bfloat16", multiplies_bfloat16()},
                    {"fp32_product_flops_per_second", found.fp32_flops_per_second},
                    {"bf16_product_flops_per_second", found.bf16_flops_per_second},
                    {"copy_bytes_per_second", found.copy_bytes_per_second},
                    {"read_bytes_per_second", found.read_bytes_per_second},
                    {"memory_bytes", found.memory.total_bytes},
                    {"memory_available_bytes", found.memory.available_bytes},
                    {"disk_free_bytes", found.disk_free_bytes},
                    {"cuda", as_json(found.cuda)},
                    {"libraries", libraries}});
}

void print(const Diagnosis& found) {
  const char* bf16 = multiplies_bfloat16() ? "the CPU has BF16 instructions"
                                           : "converted to FP32: no BF16 instructions in use";
  std::printf("hybrid            %s\n", project_version().c_str());
  std::printf("CPU               %s\n", found.processor.name.c_str());
  const std::string quota = found.quota ? concat(" (quota: ", brief(*found.quota), ")") : "";
  std::printf("threads           %d of %d cores%s, waiting %s\n", threads(), found.processor.cores,
              quota.c_str(), waiting_of_threads().c_str());
  std::printf("instruction set   %s (HYBRID_MAX_ISA limits it)\n", name_of(instruction_set()));
  std::printf("FP32 products     %.1f GFLOP/s\n", 1e-9 * found.fp32_flops_per_second);
  std::printf("BF16 products     %.1f GFLOP/s (%s)\n", 1e-9 * found.bf16_flops_per_second, bf16);
  std::printf("copying           %.1f GB/s, reads and writes together\n",
              1e-9 * found.copy_bytes_per_second);
  std::printf("reading           %.1f GB/s\n", 1e-9 * found.read_bytes_per_second);
  std::printf("memory            %s, %s of it available\n",
              units::bytes(found.memory.total_bytes).c_str(),
              units::bytes(found.memory.available_bytes).c_str());
  std::printf("disk              %s free in this folder\n",
              units::bytes(found.disk_free_bytes).c_str());
  std::printf("libraries         ");
  const char* separator = "";
  for (const auto& [name, version] : kLibraries) {
    std::printf("%s%s %s", separator, name, version);
    separator = ", ";
  }
  std::printf("\n");
  print(found.cuda);
}

}  // namespace

int doctor_command(const std::vector<std::string>& arguments) {
  bool json = false;
  CommandSyntax syntax{.name = "doctor",
                       .usage = "[--ranks N] [--json]",
                       .description =
                           "Shows the hardware and libraries of this machine and measures its\n"
                           "speed in a few seconds. With --ranks, or when started by mpirun with\n"
                           "several ranks, measures the link between them."};
  std::optional<int> ranks;
  auto add = syntax.options.add_options();
  add("ranks", optional_value(ranks, "N"),
      "Start N processes on this machine and measure the link between them.");
  add("json", po::bool_switch(&json), "Print the result as one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;
  if (ranks && *ranks < 2)
    throw UsageError(concat("doctor: --ranks: got ", *ranks, ", want 2 or more"));
  const std::optional<LaunchedRank> launched = launched_rank();
  if (ranks && launched && launched->size != *ranks) {
    throw UsageError(concat("doctor: --ranks: got ", *ranks, ", but this process is one of ",
                            launched->size, " ranks that ", launched->launcher, " started"));
  }
  if (launched && launched->size > 1) return diagnose_ranks(*launched, json);
  if (ranks) return run_local_ranks(command_of_rank("doctor", arguments), *ranks);
  const Diagnosis found = diagnose();
  if (json) {
    std::cout << as_json(found) << "\n";
  } else {
    print(found);
  }
  return 0;
}

}  // namespace hybrid_trainer
