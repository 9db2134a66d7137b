#pragma once

#include "src/core/process.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Reads an environment variable; null if it is not set.
using EnvironmentVariable = std::function<const char*(const char*)>;

/// Environment variable with the job's secret, the same for all ranks.
inline constexpr const char* kSecretVariable = "HYBRID_SECRET";

/// Generates the secret of a job, 64 hex digits.
std::string random_secret();
/// Returns the secret that the launcher gave to all ranks: HYBRID_SECRET, mpirun's key, or "".
std::string secret_of_launcher(const EnvironmentVariable& variable);
/// Returns the path of the secret's file, next to the run's folder.
std::filesystem::path secret_file_of(const std::filesystem::path& run);

/// Secret with which a job's ranks authenticate each other. It comes from the launcher, or rank 0
/// generates it and stores it in a file for its user only. It is never sent.
class JobSecret {
 public:
  JobSecret(int rank, std::string launcher_secret, std::filesystem::path file);
  /// Removes the file. Signals that end the process also remove it.
  ~JobSecret();
  JobSecret(const JobSecret&) = delete;

  /// Returns the secret. Ranks other than 0 read the file on each call and return "" if it does not
  /// exist. Throws IoError if rank 0 cannot write the file.
  std::string obtain();
  /// Returns the secret that all ranks, already connected, agree on. Collective. Throws UsageError
  /// if a rank does not see the file within ten seconds.
  std::string agree(Communicator& ranks);

 private:
  void create_file();

  const int rank_;
  const std::string launcher_secret_;
  const std::filesystem::path file_;
  std::string file_secret_;
  std::optional<TemporaryPath> created_file_;
};

}  // namespace hybrid_trainer
