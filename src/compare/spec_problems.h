#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// What is wrong with a spec, to be thrown together; each says where it stands.
class SpecProblems {
 public:
  /// `lines` tells where keys outside lists stand.
  SpecProblems(std::string file, std::map<std::string, std::size_t> lines)
      : file_(std::move(file)), lines_(std::move(lines)) {}
  void note(const std::string& path, const std::string& problem);
  std::vector<std::string>& all() { return problems_; }

  // What a key has; each notes what is wrong with it.
  void check_keys(const boost::json::object& object, const std::string& path,
                  const std::vector<std::string>& known);
  std::string text(const boost::json::object& object, const char* key, const std::string& path);
  std::vector<std::int64_t> whole_numbers(const boost::json::object& object, const char* key,
                                          const std::string& path, std::int64_t lowest);

 private:
  std::string file_;
  std::map<std::string, std::size_t> lines_;
  std::vector<std::string> problems_;
};

/// A value for a message.
std::string in_brief(const boost::json::value& value);

}  // namespace hybrid_trainer
