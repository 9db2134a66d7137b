#include "src/hugging_face/module_pattern.h"

#include <boost/regex.hpp>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kLongestPattern = 1 << 16;

/// Python's spelling of a group with a name, in Perl's.
std::string in_perl(std::string pattern) {
  for (std::size_t at = 0; (at = pattern.find("(?P<", at)) != pattern.npos;)
    pattern.erase(at + 2, 1);
  return pattern;
}

}  // namespace

struct ModulePattern::Compiled {
  explicit Compiled(const std::string& pattern) : regex(in_perl(pattern), boost::regex::perl) {}
  boost::regex regex;
};

ModulePattern::ModulePattern(const std::string& pattern) : text_(pattern.substr(0, 60)) {
  if (pattern.size() > kLongestPattern)
    throw DataError(concat("the pattern ", text_, "… has ", pattern.size(), " characters; at most ",
                           kLongestPattern, " are read"));
  try {
    compiled_ = std::make_shared<const Compiled>(pattern);
  } catch (const std::runtime_error& error) {
    throw DataError(concat("the pattern ", text_, " cannot be read: ", error.what()));
  }
}

std::optional<std::string> ModulePattern::first_group(const std::string& name) const {
  try {
    boost::smatch match;
    if (!boost::regex_match(name, match, compiled_->regex)) return {};
    return match.size() > 1 ? match[1].str() : "";
  } catch (const std::runtime_error&) {
    throw DataError(concat("the pattern ", text_,
                           " takes too long to match; write it without "
                           "repetitions within repetitions"));
  }
}

}  // namespace hybrid_trainer
