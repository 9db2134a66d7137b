#pragma once

#include "src/core/process.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Reads an environment variable; null where it is not set.
using EnvironmentVariable = std::function<const char*(const char*)>;

/// Environment variable with a text that all ranks of a job share and nobody else knows.
inline constexpr const char* kSecretVariable = "HYBRID_SECRET";

/// A secret for one job, of 64 digits.
std::string drawn_secret();
/// Secret that the launcher gave to all ranks of this job: HYBRID_SECRET, or the key that mpirun
/// draws. "": nothing.
std::string secret_of_launcher(const EnvironmentVariable& variable);
/// Beside the folder of a run.
std::filesystem::path secret_file_of(const std::filesystem::path& run);

/// By what the ranks of a job know each other (rank_connection.h): the launcher's, or else what rank
/// 0 draws and leaves in a file that its user alone may read. It is never sent.
class JobSecret {
 public:
  JobSecret(int rank, std::string of_launcher, std::filesystem::path file);
  /// Removes the file, as signals that end the process do.
  ~JobSecret();
  JobSecret(const JobSecret&) = delete;

  /// What is known now. Another rank than 0 reads the file each time; "" where it is not there.
  /// Throws IoError where rank 0 cannot leave it.
  std::string look();
  /// The one that all ranks have, which are connected already. A collective; throws UsageError where
  /// a rank does not see the file within ten seconds.
  std::string agree(Communicator& ranks);

 private:
  void leave_file();

  const int rank_;
  const std::string of_launcher_;
  const std::filesystem::path file_;
  std::string from_file_;
  std::optional<TemporaryPath> left_file_;
};

}  // namespace hybrid_trainer
