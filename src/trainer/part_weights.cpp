#include "src/trainer/part_weights.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/name_pattern.h"
#include "hybrid_trainer/nn/part_settings.h"

namespace hybrid_trainer {
namespace {

/// The first of the names, and how many more there are.
std::string some_of(const std::vector<std::string>& names) {
  if (names.empty()) return "it has none";
  return concat("they are called, for example, ", names.front(), " and ", names[names.size() / 2]);
}

bool concerns_weights(const PartConfig& part) {
  return part.lora || part.base || part.place || part.has_optimizer();
}

std::vector<std::string> names_of_weights(Network& network) {
  std::vector<std::string> names;
  network.visit_parameters([&](Parameter& parameter) { names.push_back(parameter.name()); });
  return names;
}

std::vector<std::string> names_of_linears(Network& network) {
  std::vector<std::string> names;
  network.visit_linears([&](Linear& linear) { names.push_back(linear.weight().name()); });
  return names;
}

bool matches_any(const std::vector<std::string>& names, const std::string& pattern) {
  return std::ranges::any_of(names, [&](auto& name) { return matches_pattern(name, pattern); });
}

/// The weights that two patterns match: one for each pair.
void collect_double_matches(const std::vector<PartConfig>& parts,
                            const std::vector<std::string>& names,
                            std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = i + 1; k < parts.size(); ++k) {
      const auto both = std::ranges::find_if(names, [&](const std::string& name) {
        return matches_pattern(name, parts[i].pattern) && matches_pattern(name, parts[k].pattern);
      });
      if (both != names.end())
        problems.push_back(concat("parts: ", parts[i].pattern, " and ", parts[k].pattern,
                                  " both match ", *both, "; want one pattern for each weight"));
    }
  }
}

}  // namespace

const PartConfig* PartWeights::part_of(const std::string& weight) const {
  const auto part = std::ranges::find_if(
      parts_, [&](const PartConfig& one) { return matches_pattern(weight, one.pattern); });
  return part == parts_.end() ? nullptr : &*part;
}

std::optional<std::string> PartWeights::form_of(const std::string& weight) const {
  const PartConfig* const part = part_of(weight);
  if (part != nullptr && part->base) return part->base;
  const bool is_frozen = lora_.is_on() || (part != nullptr && part->is_adapted());
  return is_frozen ? std::optional(lora_.base) : std::nullopt;
}

std::optional<std::int64_t> PartWeights::rank_of(const std::string& weight) const {
  const PartConfig* const part = part_of(weight);
  if (part != nullptr && part->lora) return part->lora;
  return lora_.is_on() ? std::nullopt : std::optional<std::int64_t>(0);
}

std::vector<std::string> PartWeights::forms() const {
  std::vector<std::string> forms{lora_.base};
  for (const PartConfig& part : parts_)
    if (part.base) forms.push_back(*part.base);
  return forms;
}

void PartWeights::check(Network& network) const {
  if (parts_.empty()) return;
  const std::vector<std::string> names = names_of_weights(network),
                                 linears = names_of_linears(network);
  std::vector<std::string> problems;
  for (const PartConfig& part : parts_) {
    if (concerns_weights(part) && !matches_any(names, part.pattern))
      problems.push_back(concat("parts: ", part.pattern, " matches none of the model's weights; ",
                                some_of(names)));
    else if (part.is_adapted() && !matches_any(linears, part.pattern))
      problems.push_back(concat("parts.", part.pattern, ".lora: got ", *part.lora,
                                ", but adapters are for linear maps, of which it matches none; ",
                                some_of(linears)));
  }
  collect_double_matches(parts_, names, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void set_parts(Network& network, const std::vector<PartConfig>& parts) {
  std::vector<PartSettings> settings;
  for (const PartConfig& part : parts) {
    if (!part.computes()) continue;
    PartSettings& own = settings.emplace_back(PartSettings{.pattern = part.pattern});
    own.recompute = part.recompute;
    if (part.precision) own.dtype = *part.precision == "bf16" ? DType::kBF16 : DType::kF32;
  }
  if (!settings.empty()) network.set_parts(settings);
}

}  // namespace hybrid_trainer
