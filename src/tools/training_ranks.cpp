#include "src/tools/training_ranks.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/single_communicator.h"

namespace hybrid_trainer {
namespace {

/// What rank 0 has to say an error that all ranks meet, before another one ends the job.
constexpr auto kTimeOfRank0 = std::chrono::seconds(3);

[[noreturn]] void become_mpirun(const std::vector<std::string>& arguments) {
  std::cerr << "starts: " << join(arguments, " ") << std::endl;
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  throw DeviceError(
      "--ranks: mpirun does not start; install openmpi-bin, or start the ranks by another MPI");
}

}  // namespace

std::vector<std::string> mpirun_arguments(const std::string& program, const std::string& command,
                                          const std::vector<std::string>& arguments, int ranks) {
  // A signal that stops the job leaves ranks five seconds to save, one without this; mpirun waits
  // as long where a rank failed.
  const std::vector<std::string> options{
      "--bind-to", "none", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "5"};
  std::vector<std::string> all{"mpirun", "-np", std::to_string(ranks)};
  if (geteuid() == 0) all.emplace_back("--allow-run-as-root");
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {program, command});
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--ranks") {
      ++i;
    } else if (!arguments[i].starts_with("--ranks=")) {
      all.push_back(arguments[i]);
    }
  }
  return all;
}

TrainingRanks::TrainingRanks(const std::string& command, const std::vector<std::string>& arguments,
                             int local_ranks)
    : launched_(launched_rank()), alone_(local_ranks == 1 && !launched_) {
  if (local_ranks < 0) throw UsageError(concat("--ranks: got ", local_ranks, ", want 1 or more"));
  if (local_ranks == 0 || alone_) return;
  if (launched_) {
    throw UsageError(concat("--ranks starts ranks, and this is one that ", launched_->launcher,
                            " started; leave it out"));
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  become_mpirun(mpirun_arguments(program.string(), command, arguments, local_ranks));
}

int TrainingRanks::run_as_rank(const TrainingRunSettings& settings,
                               const std::function<int(const TrainingRunResult&)>& report) const {
  Communicator& ranks = *settings.ranks;
  try {
    const TrainingRunResult result = run_training(settings, std::cerr);
    if (ranks.rank() == 0) return report(result);
    return static_cast<int>(result.end == RunEnd::kInterrupted ? ExitCode::kInterrupted
                                                               : ExitCode::kSuccess);
  } catch (const std::exception& error) {
    if (ranks.rank() == 0) throw;
    std::this_thread::sleep_for(kTimeOfRank0);
    ranks.abort(error.what());
    throw;
  }
}

int TrainingRanks::run(TrainingRunSettings settings,
                       const std::function<int(const TrainingRunResult&)>& report) const {
  if (!launched_ && !alone_) return report(run_training(settings, std::cerr));
  const Interruption interruption;  // before the thread of MPI
  settings.interruption = &interruption;
  const std::unique_ptr<Communicator> ranks =
      alone_ ? std::make_unique<SingleCommunicator>() : start_launched_rank(*launched_);
  settings.ranks = ranks.get();
  if (launched_) settings.local_ranks = launched_->local_size;
  return run_as_rank(settings, report);
}

}  // namespace hybrid_trainer
