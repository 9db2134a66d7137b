#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Returns the path of a file or folder in tests/golden.
inline std::string golden(const std::string& name) { return HT_TEST_DATA_DIR "/" + name; }

/// Writes a new file: some file systems wait for the disk when an existing one is truncated.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::error_code absent;
  if (std::filesystem::is_regular_file(path, absent)) std::filesystem::remove(path, absent);
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A new folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "hybrid-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }
  /// Writes a file, after making the parent folders of `name`.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_text(path_ / name, text);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
}

/// Expects that `message` contains all of the words.
inline void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_TRUE(contains(message, word));
}

/// Returns the message of the E that `action` throws. Without one, fails the test and returns "".
template <class E, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of this type was thrown";
  return "";
}

}  // namespace hybrid_trainer
