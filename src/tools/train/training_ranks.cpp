#include "src/tools/train/training_ranks.h"

#include <unistd.h>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/config/config_checks.h"
#include "src/core/cuda_runtime.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/core/process.h"
#include "src/distributed/communicator.h"
#include "src/distributed/single_communicator.h"
#include "src/files/checkpoint.h"
#include "src/files/json.h"
#include "src/files/output_file.h"
#include "src/tools/train/local_ranks.h"

namespace hybrid_trainer {

namespace {

/// Describes the checkpoint to resume from. Does not load it, because time may be short.
std::string resume_hint(const RunPaths& run) {
  try {
    if (const auto found = find_newest_whole_checkpoint(run.checkpoints()))
      return concat("--resume continues from the newest good checkpoint, ", found->path);
  } catch (const Error&) {  // the folder cannot be listed
  }
  return "there is no good checkpoint, so --resume starts from the beginning";
}

/// Writes summary.json for a run that can no longer write it.
void write_summary_of_loss(const RunPaths& run, int ranks, const std::string& line) try {
  replace_file(
      run.summary(),
      json_line({{"end", "failed"}, {"distributed", {{"ranks", ranks}, {"lost_rank", line}}}}));
} catch (const Error& error) {
  std::cerr << concat("error: ", error.what(), "\n") << std::flush;
}

// Records the end of a job after a lost rank: lines in log.txt and a summary.json.
void record_rank_loss(const TrainingRunSettings& settings, const std::string& line, bool reports) {
  const RunPaths run{settings.run.string()};
  const int rank = settings.ranks->rank();
  const std::string text = reports ? concat(line, "; ", resume_hint(run)) : line;
  std::ofstream(rank == 0 ? run.root + "/log.txt" : concat(run.root, "/ranks/", rank, "/log.txt"),
                std::ios::app)
      << text << '\n';
  if (!reports) return;
  std::cerr << concat("error: ", text, "\n") << std::flush;
  write_summary_of_loss(run, settings.ranks->size(), line);
}

/// Records why this rank ends, before it ends others. Does nothing if it has not started.
void record_failure(const TrainingRunSettings& settings, const std::string& reason) {
  const RunPaths run{settings.run.string()};
  const int rank = settings.ranks->rank();
  const std::string own = concat(run.root, "/ranks/", rank);
  if (!std::filesystem::exists(settings.resume ? run.root : own)) return;
  const std::string line =
      concat("rank ", rank, " (", host_name(), ", process ", getpid(), ") gave up: ", reason);
  std::ofstream(run.root + "/log.txt", std::ios::app) << line << "; " << resume_hint(run) << '\n';
  write_summary_of_loss(run, settings.ranks->size(), line);
}

/// Time for rank 0 to report an error of all ranks and to end, before another rank ends the job.
constexpr auto kTimeOfRank0 = std::chrono::seconds(15);
/// Time for rank 0 to report an error and to end before the ranks have connected.
constexpr auto kTimeOfStart = std::chrono::seconds(5);
/// Time for the watch to report a lost rank, which ends the process.
constexpr auto kTimeOfWatch = std::chrono::seconds(2);

/// Waits for rank 0, which ends the job if it has the same error. The launcher then stops this
/// rank.
void wait_for_rank_0_to_end(const Interruption& interruption) {
  if (interruption.requested()) return;  // requested before the error
  const auto end = std::chrono::steady_clock::now() + kTimeOfRank0;
  while (std::chrono::steady_clock::now() < end) {
    if (interruption.requested()) end_process(static_cast<int>(ExitCode::kInterrupted));
    count_progress();  // not stuck
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

RankWatchSettings watch_settings(const TrainingRunSettings& settings, std::string secret) {
  RankWatchSettings watch;
  watch.secret = std::move(secret);
  watch.limits.no_progress =
      std::chrono::seconds(settings.config.distributed.collective_timeout_seconds);
  watch.limits.silence = std::min(watch.limits.silence, watch.limits.no_progress);
  watch.limits.heartbeat = watch.limits.silence / 10;
  watch.progress = [&] {
    RankProgress progress = settings.ranks->call_progress();
    progress.work = progress_so_far();
    return progress;
  };
  watch.report = [&](const std::string& line, bool reports) {
    record_rank_loss(settings, line, reports);
  };
  watch.end = [&] { settings.ranks->abort(""); };
  return watch;
}

void check_backend_is(const std::string& name, const HybridTrainerConfig& config) {
  const std::string& wanted = config.distributed.backend;
  if (wanted == "auto" || wanted == name) return;
  throw ConfigError({concat("distributed.backend: got ", wanted, ", but these ranks use ", name,
                            "; on CPUs, --ranks uses sockets, and mpirun or "
                            "srun --mpi=pmix uses mpi")});
}

/// Returns the rank of this process, or nullopt for rank 0. Does not report errors in the
/// launcher's variables, which are reported elsewhere.
std::optional<std::string> later_rank() {
  std::string rank = "0";
  try {
    if (const auto launched = launched_rank()) rank = std::to_string(launched->rank);
  } catch (const UsageError&) {
    if (const char* const said = std::getenv("OMPI_COMM_WORLD_RANK")) rank = said;
  }
  return rank == "0" ? std::nullopt : std::optional(rank);
}

}  // namespace

int report_errors_once(const std::function<int()>& command) {
  if (later_rank()) send_warnings_to(nullptr);
  try {
    return command();
  } catch (const Error& error) {
    const auto later = later_rank();
    if (!later) throw;
    std::this_thread::sleep_for(kTimeOfStart);
    throw Error(error.code(), concat("rank ", *later, " on ", host_name(), ": ", error.what()));
  }
}

bool resumes(bool asked) {
  if (asked) return true;
  const auto restart = restart_of_job();
  if (restart && !later_rank())
    std::cerr << *restart << ": the job was restarted, as if with --resume" << std::endl;
  return restart.has_value();
}

TrainingRanks::TrainingRanks(const std::string& command, const std::vector<std::string>& arguments,
                             std::optional<int> local_ranks, const HybridTrainerConfig& config)
    : launched_(launched_rank()) {
  if (launched_ && launched_->size == 1 && launched_->launcher != "mpirun") launched_.reset();
  if (!launched_ && !local_ranks) return;
  device_ = find_device(config.device, launched_ ? launched_->local_rank : 0);
  check_backend(config.distributed, device_);
  if (!local_ranks) return;
  if (*local_ranks < 1) throw UsageError(concat("--ranks: got ", *local_ranks, ", want 1 or more"));
  is_single_rank_ = *local_ranks == 1 && !launched_;
  if (is_single_rank_ || (launched_ && launched_->size == *local_ranks)) return;
  if (launched_) {
    throw UsageError(concat("--ranks: got ", *local_ranks, ", but this process is one of ",
                            launched_->size, " ranks that ", launched_->launcher,
                            " started; leave it out"));
  }
  own_command_ = command_of_rank(command, arguments);
  local_ranks_ = *local_ranks;
  check_backend_is(device_.type == DeviceType::kCpu ? "sockets" : "nccl", config);
  if (device_.type == DeviceType::kCpu) return;
  if (const int devices = cuda_runtime().device_count(); local_ranks_ > devices) {
    throw UsageError(concat("--ranks: got ", local_ranks_,
                            ", but each rank needs a CUDA device and this machine has ", devices,
                            "; --device cpu runs the ranks on CPUs"));
  }
}

int TrainingRanks::run_as_rank(TrainingRunSettings& settings, const Interruption& interruption,
                               const std::function<int(const TrainingRunResult&)>& report,
                               const std::function<void(TrainingRunSettings&)>& complete,
                               std::optional<RankWatch>& watch) const {
  Communicator& ranks = *settings.ranks;
  bool begins = false;
  try {
    if (complete) complete(settings);
    begins = true;
    const TrainingRunResult result = run_training(settings, std::cerr);
    if (ranks.rank() == 0) return report(result);
    return 0;  // another code would make the launcher end rank 0, which may still be writing
  } catch (const std::exception& error) {
    const bool has_lost_one = dynamic_cast<const RankLost*>(&error) != nullptr;
    if (watch && has_lost_one) std::this_thread::sleep_for(kTimeOfWatch);
    if (ranks.rank() == 0) throw;
    wait_for_rank_0_to_end(interruption);
    watch.reset();
    if (begins) record_failure(settings, error.what());
    ranks.abort(error.what());
    throw;
  }
}

int TrainingRanks::run(TrainingRunSettings settings,
                       const std::function<int(const TrainingRunResult&)>& report,
                       const std::function<void(TrainingRunSettings&)>& complete) const {
  if (local_ranks_ > 0) {
    check_ranks(settings.config, local_ranks_);  // before starting thousands of processes
    return run_local_ranks(own_command_, local_ranks_);
  }
  if (!launched_ && !is_single_rank_) {
    const Interruption interruption(
        "stopped before the first step: nothing was trained; start again with: " +
        settings.restart_command);
    settings.interruption = &interruption;
    if (complete) complete(settings);
    return report(run_training(settings, std::cerr));
  }
  std::signal(SIGPIPE, SIG_IGN);    // a killed launcher closes the console
  const Interruption interruption;  // before MPI's thread
  settings.interruption = &interruption;
  std::optional<JobSecret> secret;
  secret.emplace(launched_ ? launched_->rank : 0,
                 secret_of_launcher([](const char* name) { return std::getenv(name); }),
                 secret_file_of(settings.run));
  const std::unique_ptr<Communicator> ranks =
      is_single_rank_ ? std::make_unique<SingleCommunicator>()
                      : start_launched_rank(*launched_, device_, *secret);
  if (launched_) check_backend_is(ranks->name(), settings.config);
  if (launched_) settings.local_rank = launched_->local_rank;
  settings.ranks = ranks.get();
  const std::vector<std::string> hosts = ranks->host_gather(host_name());
  settings.local_ranks = static_cast<int>(std::ranges::count(hosts, host_name()));
  std::optional<RankWatch> watch;
  if (ranks->size() > 1) watch.emplace(*ranks, watch_settings(settings, secret->agree(*ranks)));
  secret.reset();  // no longer needed
  return run_as_rank(settings, interruption, report, complete, watch);
}

}  // namespace hybrid_trainer
