#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "src/files/json.h"

namespace hybrid_trainer {

/// Files of a folder, by name. Reads each file once, at first use. Copies of this object share the
/// contents. Not thread-safe.
class FolderFiles {
 public:
  FolderFiles(std::filesystem::path folder)  // NOLINT: a path is a folder of which nothing was read
      : path_(std::move(folder)) {}

  const std::filesystem::path& path() const { return path_; }
  bool contains(const std::string& name) const;
  /// The following functions throw like read_file, read_text and read_json.
  const std::string& bytes(const std::string& name, std::size_t max_bytes) const;
  std::string text(const std::string& name, std::size_t max_bytes) const;
  boost::json::value json(const std::string& name, const JsonLimits& limits = {}) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<std::map<std::string, std::string>> read_ =
      std::make_shared<std::map<std::string, std::string>>();
};

}  // namespace hybrid_trainer
