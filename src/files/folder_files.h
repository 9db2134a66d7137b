#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "src/files/json.h"

namespace hybrid_trainer {

/// The files of a folder, by their names. Each is read at most once, when it is first asked for; copies
/// share what was read. Not for several threads at once.
class FolderFiles {
 public:
  FolderFiles(std::filesystem::path folder)  // NOLINT: a path is a folder of which nothing was read
      : path_(std::move(folder)) {}

  const std::filesystem::path& path() const { return path_; }
  bool contains(const std::string& name) const;
  /// Throws as read_file.
  const std::string& bytes(const std::string& name, std::size_t max_bytes) const;
  /// Throws as read_text.
  std::string text(const std::string& name, std::size_t max_bytes) const;
  /// Throws as read_json.
  boost::json::value json(const std::string& name, const JsonLimits& limits = {}) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<std::map<std::string, std::string>> read_ =
      std::make_shared<std::map<std::string, std::string>>();
};

}  // namespace hybrid_trainer
