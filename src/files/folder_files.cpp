#include "src/files/folder_files.h"

#include <boost/json/value.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/files/text.h"

namespace hybrid_trainer {

bool FolderFiles::contains(const std::string& name) const {
  return read_->contains(name) || std::filesystem::exists(path_ / name);
}

const std::string& FolderFiles::bytes(const std::string& name, std::size_t max_bytes) const {
  auto found = read_->find(name);
  if (found == read_->end()) found = read_->emplace(name, read_file(path_ / name, max_bytes)).first;
  if (found->second.size() > max_bytes)
    throw DataError(concat((path_ / name).native(), ": has ", found->second.size(),
                           " bytes; want at most ", max_bytes));
  return found->second;
}

std::string FolderFiles::text(const std::string& name, std::size_t max_bytes) const {
  return text_of_bytes(bytes(name, max_bytes), path_ / name);
}

boost::json::value FolderFiles::json(const std::string& name, const JsonLimits& limits) const {
  return parse_json_text(text(name, limits.max_bytes), (path_ / name).native(), limits);
}

}  // namespace hybrid_trainer
