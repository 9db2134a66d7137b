#include "tests/support/small_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace hybrid_trainer {
namespace {

constexpr int kNotAllowed = 77;

void write_to(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t wrote = ::write(file, text.data(), text.size());
  ::close(file);
}

/// Enters a private mount namespace, inside a new user namespace if the process is not root.
bool enter_namespace() {
  if (::unshare(CLONE_NEWNS) == 0) return true;
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  write_to("/proc/self/setgroups", "deny");
  write_to("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
  write_to("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  return true;
}

/// Mounts an empty disk of `bytes` at `folder`. Returns "" or the reason for the failure.
std::string mount_small_disk(const std::string& folder, std::size_t bytes) {
  if (!enter_namespace()) return std::string("no mount namespace: ") + std::strerror(errno);
  const std::string options = "size=" + std::to_string(bytes);
  const bool mounted = ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("tmpfs", folder.c_str(), "tmpfs", 0, options.c_str()) == 0;
  return mounted ? "" : std::string("no tmpfs can be mounted: ") + std::strerror(errno);
}

/// Runs `test` and ends the process. Catches all exceptions, so that no other tests run.
[[noreturn]] void run_and_exit(const std::function<void()>& test) {
  try {
    test();
  } catch (const std::exception& problem) {
    ADD_FAILURE() << problem.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

std::string run_on_small_disk(const std::string& folder, std::size_t bytes,
                              const std::function<void()>& test) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string problem = mount_small_disk(folder, bytes);
    if (problem.empty()) run_and_exit(test);
    [[maybe_unused]] const ssize_t told = ::write(ends[1], problem.data(), problem.size());
    ::_exit(kNotAllowed);
  }
  ::close(ends[1]);
  char reason[200];
  const ssize_t got = ::read(ends[0], reason, sizeof reason);
  ::close(ends[0]);
  int status = 0;
  const bool ran = child > 0 && ::waitpid(child, &status, 0) == child;
  if (ran && WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed)
    return std::string(reason, got > 0 ? static_cast<std::size_t>(got) : 0);
  EXPECT_TRUE(ran && WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the test on the small disk failed, see above";
  return "";
}

void fill_disk(const std::string& file) {
  const int ballast = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(ballast, 0);
  const std::vector<char> page(4096, 'x');
  while (::write(ballast, page.data(), page.size()) > 0) continue;
  EXPECT_EQ(errno, ENOSPC);
  ::close(ballast);
}

}  // namespace hybrid_trainer
