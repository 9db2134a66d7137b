#include "src/distributed/launched_rank.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "src/distributed/nccl_communicator.h"

namespace hybrid_trainer {

namespace {

struct Launcher {
  const char* name;
  const char *rank, *size, *local_rank, *local_size;
  const char* sign;  // set only by this launcher
};

constexpr Launcher kMpirun{"mpirun",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "OMPI_COMM_WORLD_RANK"};
constexpr Launcher kTorchrun{
    "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"};
constexpr Launcher kLocal{
    "hybrid --ranks", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", kLocalRanksVariable};
/// Variables that were set by hand, or by a launcher that starts one rank per host.
constexpr Launcher kVariables{"the launcher that set RANK and WORLD_SIZE",
                              "RANK",
                              "WORLD_SIZE",
                              "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE",
                              "RANK"};
/// SLURM_STEP_ID distinguishes a step from a batch script, which also has the first two variables.
constexpr Launcher kSrun{"srun",          "SLURM_PROCID",          "SLURM_NTASKS",
                         "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_ID"};

const char* text_in(const std::string& launcher, const char* name,
                    const EnvironmentVariable& variable) {
  const char* const text = variable(name);
  if (text != nullptr) return text;
  throw UsageError(concat(launcher, " started this process, but ", name, " is not set"));
}

int number_of(const char* name, const char* text) {
  int number = -1;
  const auto read = std::from_chars(text, text + std::strlen(text), number);
  if (read.ec != std::errc() || number < 0)
    throw UsageError(concat(name, ": got \"", text, "\", want a count"));
  return number;
}

int number_in(const std::string& launcher, const char* name, const EnvironmentVariable& variable) {
  return number_of(name, text_in(launcher, name, variable));
}

std::optional<LaunchedRank> rank_from(const Launcher& launcher,
                                      const EnvironmentVariable& variable) {
  if (variable(launcher.sign) == nullptr) return {};
  LaunchedRank found{.launcher = launcher.name,
                     .rank = number_in(launcher.name, launcher.rank, variable),
                     .size = number_in(launcher.name, launcher.size, variable)};
  if (&launcher != &kVariables || variable(launcher.local_rank) != nullptr)
    found.local_rank = number_in(launcher.name, launcher.local_rank, variable);
  const bool has_local_size = variable(launcher.local_size) != nullptr;
  found.local_size = has_local_size ? number_in(launcher.name, launcher.local_size, variable)
                                    : found.local_rank + 1;
  // PMIX_RANK is not enough: children of an srun task inherit it but cannot use PMIx.
  found.supports_pmix =
      &launcher == &kMpirun || (&launcher == &kSrun && variable("PMIX_RANK") != nullptr);
  if (found.rank < found.size && found.local_rank < found.local_size) return found;
  throw UsageError(concat(launcher.rank, ": got rank ", found.rank, " of ", found.size,
                          ", and local rank ", found.local_rank, " of ", found.local_size,
                          " on this host; want ranks below these numbers"));
}

/// Reads torchrun's variables; without torchrun, only if they describe several ranks.
std::optional<LaunchedRank> rank_from_variables(const EnvironmentVariable& variable) {
  if (const auto by_torchrun = rank_from(kTorchrun, variable)) return by_torchrun;
  if (variable(kVariables.size) == nullptr) return {};
  const auto by_hand = rank_from(kVariables, variable);
  return by_hand && by_hand->size > 1 ? by_hand : std::nullopt;
}

void check_agreement(const LaunchedRank& one, const LaunchedRank& other) {
  if (one.rank == other.rank && one.size == other.size) return;
  throw UsageError(concat("two launchers disagree: ", one.launcher, " says rank ", one.rank, " of ",
                          one.size, ", ", other.launcher, " says rank ", other.rank, " of ",
                          other.size, "; start the ranks with only one of them"));
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const EnvironmentVariable& variable) {
  if (const auto local = rank_from(kLocal, variable)) return local;
  const auto by_mpirun = rank_from(kMpirun, variable), by_variables = rank_from_variables(variable);
  if (by_mpirun && by_variables) check_agreement(*by_mpirun, *by_variables);
  if (by_mpirun) return by_mpirun;
  if (by_variables && by_variables->launcher == kTorchrun.name) return by_variables;
  const auto by_srun = rank_from(kSrun, variable);
  if (by_srun && by_variables) check_agreement(*by_srun, *by_variables);
  return by_srun ? by_srun : by_variables;
}

std::optional<LaunchedRank> launched_rank() {
  return launched_rank([](const char* name) { return std::getenv(name); });
}

RankRendezvous rendezvous_of(const LaunchedRank& launched, const EnvironmentVariable& variable) {
  const auto text_or_empty = [&](const char* name) {
    const char* const text = variable(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (launched.launcher == "srun" && text_or_empty("MASTER_ADDR").empty())
    throw UsageError(
        "srun started this process without PMIx: set MASTER_ADDR to the host of rank 0 and "
        "MASTER_PORT to a free port on it, for all ranks");
  const int port = number_in(launched.launcher, "MASTER_PORT", variable);
  const bool is_taken = text_or_empty("TORCHELASTIC_USE_AGENT_STORE") == "True";
  RankRendezvous rendezvous{.rank = launched.rank,
                            .size = launched.size,
                            .address = text_in(launched.launcher, "MASTER_ADDR", variable),
                            .port = static_cast<std::uint16_t>(is_taken ? port + 1 : port),
                            .job = launched.launcher,
                            .is_one_machine = launched.local_size == launched.size};
  for (const char* const name : {kLocalRanksVariable, "TORCHELASTIC_RUN_ID",
                                 "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    rendezvous.job += concat(" ", text_or_empty(name));
  return rendezvous;
}

std::optional<std::string> restart_of_job(const EnvironmentVariable& variable) {
  for (const char* const name : {"SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"}) {
    const char* const text = variable(name);
    if (text != nullptr && number_of(name, text) > 0) return concat(name, "=", text);
  }
  return {};
}

std::optional<std::string> restart_of_job() {
  return restart_of_job([](const char* name) { return std::getenv(name); });
}

static void check_matches_launcher(const LaunchedRank& launched, const Communicator& ranks) {
  if (ranks.rank() == launched.rank && ranks.size() == launched.size) return;
  throw UsageError(concat(launched.launcher, " started this process as rank ", launched.rank,
                          " of ", launched.size, ", but Open MPI reports rank ", ranks.rank(),
                          " of ", ranks.size(),
                          ": the launcher belongs to another MPI library; use the mpirun of the "
                          "Open MPI that hybrid was built with"));
}

std::unique_ptr<Communicator> start_launched_rank(const LaunchedRank& launched, Device device,
                                                  JobSecret& secret) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  const bool on_cuda = device.type == DeviceType::kCuda;
  if (!on_cuda && !launched.supports_pmix && launched.launcher != kLocal.name)
    throw UsageError(concat(launched.launcher,
                            " started this process without PMIx, but on CPUs, ranks on several "
                            "machines need Open MPI: mpirun -np ",
                            launched.size,
                            " --bind-to none hybrid train ..., or srun --mpi=pmix; on one machine ",
                            "hybrid train --ranks ", launched.size));
  const auto connect = [&] {
    RankRendezvous rendezvous = rendezvous_of(launched, environment);
    rendezvous.secret = [&] { return secret.obtain(); };
    return connect_by_sockets(rendezvous);
  };
  auto hosts = launched.supports_pmix ? start_mpi_communicator() : connect();
  check_matches_launcher(launched, *hosts);
  return on_cuda ? start_nccl_communicator(std::move(hosts), device) : std::move(hosts);
}

}  // namespace hybrid_trainer
