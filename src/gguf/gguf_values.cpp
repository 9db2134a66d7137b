#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/gguf/gguf_file.h"

namespace hybrid_trainer {
namespace {

[[noreturn]] void refuse_kind(const GgufFile& file, const std::string& key, const char* wanted) {
  throw DataError(concat(file.path().string(), ": the value ", key, " is no ", wanted,
                         "; convert the model anew"));
}

template <class T>
std::optional<T> plain_value(const GgufFile& file, const std::string& key, const char* wanted) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return {};
  if (const T* found = std::get_if<T>(&value->content)) return *found;
  refuse_kind(file, key, wanted);
}

template <class T>
std::vector<T> array_value(const GgufFile& file, const std::string& key, const char* wanted) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return {};
  if (const auto* found = std::get_if<std::vector<T>>(&value->content)) return *found;
  refuse_kind(file, key, wanted);
}

}  // namespace

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  return plain_value<std::string>(*this, key, "text");
}

std::optional<bool> GgufFile::flag(const std::string& key) const {
  return plain_value<bool>(*this, key, "flag");
}

std::optional<std::int64_t> GgufFile::count(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (const auto* whole = std::get_if<std::int64_t>(&value->content)) return *whole;
  const auto* positive = std::get_if<std::uint64_t>(&value->content);
  if (positive == nullptr) refuse_kind(*this, key, "whole number");
  return narrow<std::int64_t>(*positive, concat(path_.string(), ": ", key));
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && std::holds_alternative<double>(value->content))
    return std::get<double>(value->content);
  const std::optional<std::int64_t> whole = count(key);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  return array_value<std::string>(*this, key, "list of texts");
}

std::vector<double> GgufFile::numbers(const std::string& key) const {
  return array_value<double>(*this, key, "list of numbers");
}

std::vector<bool> GgufFile::flags(const std::string& key) const {
  return array_value<bool>(*this, key, "list of flags");
}

std::vector<std::int64_t> GgufFile::counts(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || !std::holds_alternative<std::vector<std::uint64_t>>(value->content))
    return array_value<std::int64_t>(*this, key, "list of whole numbers");
  std::vector<std::int64_t> counts;
  for (const std::uint64_t one : std::get<std::vector<std::uint64_t>>(value->content))
    counts.push_back(narrow<std::int64_t>(one, concat(path_.string(), ": an element of ", key)));
  return counts;
}

}  // namespace hybrid_trainer
