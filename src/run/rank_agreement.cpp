#include "src/run/rank_agreement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hybrid_trainer/core/processor.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/io/checksum.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

constexpr char kFactEnd = '\0';

/// The value of fact number `index`.
std::string value_in(const std::string& facts, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < facts.size(); --index) begin = facts.find(kFactEnd, begin) + 1;
  return facts.substr(begin, facts.find(kFactEnd, begin) - begin);
}

/// A long value, such as a whole configuration, from where it begins to differ.
std::string shown(const std::string& value, const std::string& other) {
  constexpr std::ptrdiff_t kMost = 60, kBefore = 20;
  const auto differs = std::mismatch(value.begin(), value.end(), other.begin(), other.end()).first;
  const auto begin = std::max<std::ptrdiff_t>(0, differs - value.begin() - kBefore);
  return value.size() <= kMost
             ? value
             : concat("...", value.substr(static_cast<std::size_t>(begin), kMost), "...");
}

/// Of a configuration, a fact of each key.
void add_keys(const std::string& path, const FieldNode& group, std::vector<NamedText>& facts) {
  for (const FieldNode& field : group.fields) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    if (field.is_group()) {
      add_keys(at, field, facts);
    } else {
      facts.emplace_back("the configuration: " + at,
                         field.left_out ? "left out" : field_text(field));
    }
  }
}

std::vector<NamedText> with_keys_of(const HybridTrainerConfig& config,
                                    std::vector<NamedText> facts) {
  add_keys("", field_tree(config), facts);
  facts.emplace_back("the configuration", config_json(config));  // to the last digit
  return facts;
}

/// The first fact in which a rank differs from most others, or, where there are no most, from the first
/// rank.
std::optional<std::string> first_difference(const RunRanks& ranks,
                                            const std::vector<NamedText>& facts) {
  std::string mine;
  for (const auto& [name, value] : facts) mine += value + kFactEnd;
  const std::vector<std::string> all = ranks.gather(mine);
  const auto likes = [&](const std::string& one) { return std::ranges::count(all, one); };
  const auto most = std::ranges::max_element(all, {}, likes);
  const auto odd = std::ranges::find_if(all, [&](const auto& one) { return one != *most; });
  if (odd == all.end()) return {};
  const std::vector<std::string> hosts = ranks.gather(host_name());
  std::size_t i = 0;
  while (i + 1 < facts.size() && value_in(*odd, i) == value_in(*most, i)) ++i;
  const auto name_of_rank = [&](const auto& one) {
    const auto rank = one - all.begin();
    return concat("rank ", rank, " (", hosts[static_cast<std::size_t>(rank)], ")");
  };
  const std::string got = value_in(*odd, i), want = value_in(*most, i);
  const std::string agreeing =
      likes(*most) > 1 ? concat(" (", likes(*most), " of ", all.size(), " ranks agree)") : "";
  return concat(name_of_rank(odd), " differs from ", name_of_rank(most), " in ", facts[i].first,
                ": ", shown(got, want), ", want ", shown(want, got), agreeing);
}

void check_same(const RunRanks& ranks, const std::vector<NamedText>& facts) {
  if (const auto difference = first_difference(ranks, facts)) throw UsageError(*difference);
}

std::vector<NamedText> weights_after(std::int64_t steps_done, LossModel& model,
                                     const Stream& stream) {
  std::vector<NamedText> facts{{"the step that it goes on from", concat(steps_done)}};
  model.visit_parameters([&](Parameter& parameter) {
    if (!parameter.trainable()) return;
    const Weight master = parameter.acquire_master(stream);
    const Tensor values = wait_for_host(master, stream);
    Checksum checksum;
    checksum.add(values.raw(), values.bytes());
    facts.emplace_back("the weight " + parameter.name(), checksum.text());
  });
  return facts;
}

std::string program_checksum() {
  static const std::string once =
      checksum_of(read_file("/proc/self/exe", std::numeric_limits<std::size_t>::max()));
  return once;
}

}  // namespace

void check_same_surroundings(const RunRanks& ranks, const HybridTrainerConfig& config,
                             std::vector<NamedText> facts) {
  facts.insert(facts.begin(),
               {{"threads", concat(threads())}, {"ONEDNN_MAX_CPU_ISA", onednn_limit_of_user()}});
  check_same(ranks, with_keys_of(config, std::move(facts)));
}

void check_same_call(const RunRanks& ranks, const HybridTrainerConfig& config, bool resume) {
  if (!ranks.are_several()) return;
  check_same(ranks, with_keys_of(config, {{"its version", project_version()},
                                          {"the checksum of its program", program_checksum()},
                                          {"--resume", resume ? "given" : "not given"}}));
}

void check_same_start(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                      const Stream& stream) {
  if (ranks.are_several()) check_same(ranks, weights_after(steps_done, model, stream));
}

void check_same_weights(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                        const Stream& stream) {
  if (!ranks.are_several()) return;
  if (const auto difference = first_difference(ranks, weights_after(steps_done, model, stream))) {
    throw RankLost(concat("after step ", steps_done, " ", *difference,
                          ": memory or processor of one of them has failed; --resume goes on from "
                          "the checkpoint before"));
  }
}

}  // namespace hybrid_trainer
