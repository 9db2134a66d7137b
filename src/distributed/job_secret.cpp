#include "src/distributed/job_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "src/core/clock.h"
#include "src/core/machine.h"
#include "src/core/sha256.h"

namespace hybrid_trainer {

namespace {

/// Key that Open MPI 4 and 5 generate for their own transports.
constexpr const char* kMpirunKey = "OMPI_MCA_orte_precondition_transports";
constexpr std::size_t kSecretDigits = 64;

/// Returns a hash to compare secrets without revealing them.
std::string fingerprint(const std::string& secret) {
  return secret.empty() ? "" : hex_of(hmac_sha256(secret, "hybrid: the same secret"));
}

/// Returns the secret in a regular file that only this user can read, or "" for all other files.
std::string read_private(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  struct stat status {};
  const bool is_own = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                      status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
  std::array<char, kSecretDigits> text{};
  const ssize_t bytes = is_own ? ::read(descriptor, text.data(), text.size()) : 0;
  ::close(descriptor);
  return bytes == std::ssize(text) ? std::string(text.data(), text.size()) : "";
}

}  // namespace

std::string random_secret() { return hex_of(sha256(random_bytes(64))); }

std::string secret_of_launcher(const EnvironmentVariable& variable) {
  for (const char* const name : {kSecretVariable, kMpirunKey}) {
    const char* const text = variable(name);
    if (text != nullptr && *text != '\0') return text;
  }
  return "";
}

std::filesystem::path secret_file_of(const std::filesystem::path& run) {
  const std::filesystem::path folder = (run.lexically_normal() / "").parent_path();
  return folder.parent_path() / concat(".", folder.filename().string(), ".secret");
}

JobSecret::JobSecret(int rank, std::string launcher_secret, std::filesystem::path file)
    : rank_(rank), launcher_secret_(std::move(launcher_secret)), file_(std::move(file)) {}

JobSecret::~JobSecret() {
  if (created_file_) ::unlink(file_.c_str());
}

std::string JobSecret::obtain() {
  if (!launcher_secret_.empty()) return launcher_secret_;
  if (rank_ == 0) {
    create_file();
  } else {
    file_secret_ = read_private(file_);
  }
  return file_secret_;
}

void JobSecret::create_file() {
  if (created_file_) return;
  std::error_code ignored;
  if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path(), ignored);
  ::unlink(file_.c_str());  // file of an earlier job
  const int descriptor =
      ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  file_secret_ = random_secret();
  const bool is_whole =
      descriptor >= 0 &&
      ::write(descriptor, file_secret_.data(), file_secret_.size()) == std::ssize(file_secret_) &&
      ::fsync(descriptor) == 0;
  const int problem = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (descriptor >= 0) created_file_.emplace(file_);
  if (!is_whole)
    throw IoError(concat(file_.string(),
                         ": cannot write the shared secret of the ranks: ", std::strerror(problem),
                         "; set ", kSecretVariable, " to the same text on all ranks instead"));
}

std::string JobSecret::agree(Communicator& ranks) {
  const std::vector<std::string> all = ranks.host_gather(fingerprint(launcher_secret_));
  if (!all.front().empty() && std::ranges::count(all, all.front()) == ranks.size())
    return launcher_secret_;
  constexpr std::chrono::milliseconds kLongest{10000}, kPause{100};
  std::string problem;
  try {
    if (rank_ == 0) create_file();
  } catch (const IoError& error) {
    problem = error.what();
  }
  const std::string wanted =
      ranks.host_gather(rank_ == 0 && problem.empty() ? fingerprint(file_secret_) : "").front();
  const auto end = Clock::now() + kLongest;
  while (rank_ > 0 && !wanted.empty() && fingerprint(file_secret_) != wanted &&
         Clock::now() < end) {
    file_secret_ = read_private(file_);  // may appear late on another machine (NFS)
    if (fingerprint(file_secret_) != wanted) std::this_thread::sleep_for(kPause);
  }
  const bool is_unreadable = wanted.empty() || fingerprint(file_secret_) != wanted;
  const std::vector<std::string> unreadable = ranks.host_gather(is_unreadable ? host_name() : "");
  if (!problem.empty()) throw IoError(problem);
  const auto first =
      std::ranges::find_if(unreadable, [](const auto& host) { return !host.empty(); });
  if (first == unreadable.end()) return file_secret_;
  throw UsageError(concat("the ranks have no shared secret: rank ", first - unreadable.begin(),
                          " on ", *first, " cannot read rank 0's secret in ", file_.string(),
                          "; use a run folder that all machines share under the same path, or set ",
                          kSecretVariable, " to the same text for all ranks"));
}

}  // namespace hybrid_trainer
