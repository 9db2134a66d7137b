#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/machine_memory.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/kernels/machine_rates.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/cuda_diagnosis.h"
#include "src/tools/local_ranks.h"
#include "src/tools/rank_diagnosis.h"
#include "src/tools/waiting_threads.h"

namespace hybrid_trainer {
namespace {

struct Library {
  const char* name;
  const char* version;
};

/// The library versions that the build found.
constexpr Library kLibraries[] = {
    {"oneDNN", HT_ONEDNN_VERSION}, {"Boost", HT_BOOST_VERSION}, {"utf8proc", HT_UTF8PROC_VERSION},
    {"Eigen", HT_EIGEN_VERSION},   {"zlib", HT_ZLIB_VERSION},   {"zstd", HT_ZSTD_VERSION},
    {"snappy", HT_SNAPPY_VERSION}, {"libpng", HT_PNG_VERSION},  {"libjpeg-turbo", HT_JPEG_VERSION},
    {"cereal", HT_CEREAL_VERSION}, {"compiler", HT_COMPILER}};

struct Diagnosis {
  ProcessorInfo processor = processor_info();
  std::optional<double> quota = processor_quota();
  MachineMemory memory = machine_memory();
  std::size_t disk_free_bytes = 0;  // where the process was started
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
  for (const Library& library : kLibraries) libraries[library.name] = library.version;
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
  const char* bf16 = multiplies_bfloat16() ? "the processor multiplies BF16"
                                           : "converted to FP32: no BF16 instructions in use";
  std::printf("hybrid            %s\n", project_version().c_str());
  std::printf("processor         %s\n", found.processor.name.c_str());
  const std::string quota = found.quota ? concat(" (quota: ", brief(*found.quota), ")") : "";
  std::printf("threads           %d of %d cores%s, waiting %s\n", threads(), found.processor.cores,
              quota.c_str(), waiting_of_threads().c_str());
  std::printf("instruction set   %s (HYBRID_MAX_ISA holds it down)\n", name_of(instruction_set()));
  std::printf("FP32 products     %.1f GFLOP/s\n", 1e-9 * found.fp32_flops_per_second);
  std::printf("BF16 products     %.1f GFLOP/s (%s)\n", 1e-9 * found.bf16_flops_per_second, bf16);
  std::printf("copying           %.1f GB/s read and written\n", 1e-9 * found.copy_bytes_per_second);
  std::printf("reading           %.1f GB/s\n", 1e-9 * found.read_bytes_per_second);
  std::printf("memory            %s, %s of it available\n",
              units::bytes(found.memory.total_bytes).c_str(),
              units::bytes(found.memory.available_bytes).c_str());
  std::printf("disk              %s free in this folder\n",
              units::bytes(found.disk_free_bytes).c_str());
  std::printf("libraries         ");
  const char* separator = "";
  for (const Library& library : kLibraries) {
    std::printf("%s%s %s", separator, library.name, library.version);
    separator = ", ";
  }
  std::printf("\n");
  print(found.cuda);
}

}  // namespace

int doctor_command(const std::vector<std::string>& arguments) {
  bool json = false;
  CommandSyntax syntax{
      .name = "doctor",
      .usage = "[--ranks N] [--json]",
      .description =
          "Measures this machine, in a few seconds, and shows what the program found on it. With\n"
          "--ranks, or as one of several ranks that mpirun started, measures the link between "
          "them.",
      .operands = {}};
  std::optional<int> ranks;
  auto add = syntax.options.add_options();
  add("ranks", po::value<int>()->value_name("N")->notifier([&](int count) { ranks = count; }),
      "Start N processes of this machine, and measure the link between them.");
  add("json", po::bool_switch(&json), "Print one JSON object.");
  if (!parse_command_line(syntax, arguments)) return 0;
  if (ranks && *ranks < 2)
    throw UsageError(concat("doctor: --ranks: got ", *ranks, ", want 2 or more"));
  const std::optional<LaunchedRank> launched = launched_rank();
  if (ranks && launched && launched->size != *ranks) {
    throw UsageError(concat("doctor: --ranks: got ", *ranks, ", and this is one of ",
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
