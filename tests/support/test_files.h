#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hybrid_trainer {

/// A test's own folder, removed with it; in memory where possible.
class TemporaryTestFolder {
 public:
  TemporaryTestFolder() {
    const bool in_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = (parent / "hybrid_io_XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  TemporaryTestFolder(const TemporaryTestFolder&) = delete;
  TemporaryTestFolder& operator=(const TemporaryTestFolder&) = delete;
  ~TemporaryTestFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  ::unlink(
      path.c_str());  // a new file: some file systems wait for the disk when an old one is emptied
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is not within: " << text;
}

/// The message of the E that `action` throws; a failed test and "" if it throws none.
template <class E, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no such error was thrown";
  return "";
}

}  // namespace hybrid_trainer
