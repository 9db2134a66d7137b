#include "hybrid_trainer/core/name_pattern.h"

namespace hybrid_trainer {

bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // What is between two stars may be taken where it comes first.
  while ((star = pattern.find('*')) != std::string_view::npos) {
    const std::size_t at = name.find(pattern.substr(0, star));
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + star);
    pattern.remove_prefix(star + 1);
  }
  return name.ends_with(pattern);
}

}  // namespace hybrid_trainer
