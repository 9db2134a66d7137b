#include "src/hugging_face/module_names.h"

#define BOOST_REGEX_MAX_STATE_COUNT 200000  // of one match over iterators without random access
#include <boost/regex.hpp>
#include <charconv>
#include <limits>
#include <list>

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

/// Calls visit(end) for a name and its ends after each dot, the longest first, until that is true.
template <class Visit>
void visit_ends(const std::string& name, const Visit& visit) {
  for (std::size_t begin = 0; !visit(name.substr(begin));) {
    begin = name.find('.', begin);
    if (begin++ == name.npos) return;
  }
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
    const std::list<char> letters(name.begin(), name.end());
    boost::match_results<std::list<char>::const_iterator> match;
    if (!boost::regex_match(letters.begin(), letters.end(), match, compiled_->regex)) return {};
    return match.size() > 1 ? match[1].str() : "";
  } catch (const std::runtime_error&) {
    throw DataError(concat("the pattern ", text_,
                           " takes too long to match; write it without "
                           "repetitions within repetitions"));
  }
}

std::int64_t leading_number(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc::result_out_of_range ? INT32_MAX : number;
}

std::string ModuleNames::name_of(const std::string& module) const {
  std::string found;
  visit_ends(module, [&](const std::string& end) {
    if (names.contains(end)) found = end;
    return false;
  });
  return found;
}

bool ModuleNames::include(const std::string& module) const {
  return pattern ? pattern->matches(module) : !name_of(module).empty();
}

void ModuleNumbers::add(const std::string& pattern, double number) {
  const Numbered numbered{plain_.size() + patterns_.size(), number};
  if (pattern.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == pattern.npos) {
    plain_.emplace(pattern, numbered);
    return;
  }
  if (patterns_.size() == kMostPatterns)
    throw DataError(concat("has more than ", kMostPatterns, " patterns"));
  patterns_.emplace_back(concat("(.*\\.)?(", pattern, ")"), numbered);
}

double ModuleNumbers::of(const std::string& module, double otherwise) const {
  const Numbered none{std::numeric_limits<std::size_t>::max(), otherwise};
  Numbered first = none;
  const auto take = [&](const Numbered& found) {
    if (found.place < first.place) first = found;
  };
  visit_ends(module, [&](const std::string& end) {
    if (const auto found = plain_.find(end); found != plain_.end()) take(found->second);
    return false;
  });
  for (const auto& [pattern, numbered] : patterns_) {
    if (numbered.place < first.place && pattern.matches(module)) take(numbered);
  }
  return first.number;
}

}  // namespace hybrid_trainer
