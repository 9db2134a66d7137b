#include "src/tools/mpirun.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/job_secret.h"
#include "src/tools/local_ranks.h"

namespace hybrid_trainer {
namespace {

/// What mpirun is called with to start so many.
std::vector<std::string> mpirun_arguments(const std::vector<std::string>& command_of_rank,
                                          int ranks) {
  // A signal that stops the job leaves ranks five seconds to save, one without this; mpirun waits
  // as long where a rank failed.
  const std::vector<std::string> options{
      "--bind-to", "none", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "5"};
  std::vector<std::string> all{"mpirun", "-np", std::to_string(ranks)};
  if (geteuid() == 0) all.emplace_back("--allow-run-as-root");
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), command_of_rank.begin(), command_of_rank.end());
  return all;
}

void prepare_to_start(const std::vector<std::string>& arguments) {
  std::cerr << "starts: " << join(arguments, " ") << std::endl;
  setenv(kSecretVariable, drawn_secret().c_str(), 1);  // the ranks of this machine inherit it
}

[[noreturn]] void become_program(const std::vector<std::string>& arguments) {
  prepare_to_start(arguments);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  throw DeviceError(
      "--ranks: mpirun does not start; install openmpi-bin, or start the ranks by another MPI");
}

/// What mpirun would have said of a job that ended by no error of a rank's own, which says so itself.
void tell_of_launcher(int exit_code) {
  constexpr int kFirst = static_cast<int>(ExitCode::kUsage),
                kLast = static_cast<int>(ExitCode::kConfig), kSignal = 128;
  if (exit_code == 0 || exit_code == static_cast<int>(ExitCode::kInterrupted) ||
      (exit_code >= kFirst && exit_code <= kLast))
    return;
  std::cerr << "error: mpirun ended with exit code " << exit_code;
  if (exit_code > kSignal) {
    std::cerr << ": a rank was ended by signal " << exit_code - kSignal << " ("
              << strsignal(exit_code - kSignal) << ")";
  } else {
    std::cerr << "; the command above says why without its --quiet";
  }
  std::cerr << std::endl;
}

}  // namespace

std::vector<std::string> command_of_rank(const std::string& program, const std::string& command,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> all{program, command};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

int run_by_mpirun(const std::vector<std::string>& command_of_rank, int ranks,
                  const std::string& restart_command) {
  std::vector<std::string> launcher = mpirun_arguments(command_of_rank, ranks);
  launcher.insert(launcher.begin() + 1, "--quiet");  // ten lines about an error that was told
  prepare_to_start(launcher);
  const LauncherEnd end = run_launcher(launcher);
  constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
  if (!end.was_asked_to_stop || end.exit_code == 0 || end.exit_code == kInterrupted) {
    tell_of_launcher(end.exit_code);
    return end.exit_code;
  }
  std::cerr << "stopped while ranks were starting; start again with: " << restart_command
            << std::endl;
  return kInterrupted;
}

void become_ranks(const std::string& command, const std::vector<std::string>& arguments,
                  int ranks) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  become_program(mpirun_arguments(command_of_rank(program.string(), command, arguments), ranks));
}

}  // namespace hybrid_trainer
