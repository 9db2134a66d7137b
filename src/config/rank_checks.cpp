#include "hybrid_trainer/config/rank_checks.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/config/refusal_checks.h"

namespace hybrid_trainer {
namespace {

/// Settings of as many examples a step with at least `ranks` micro-batches, in words.
std::string way_to_enough_micro_batches(const HybridTrainerConfig& config, int ranks) {
  const std::int64_t examples = config.data.batch_size * config.gradient_accumulation.micro_batches;
  for (std::int64_t count = ranks; count <= examples; ++count) {
    if (examples % count != 0) continue;
    return concat("data.batch_size=", examples / count,
                  " and gradient_accumulation.micro_batches=", count, " are as many examples");
  }
  return concat("a step of ", examples, " examples has no more than ", examples, " ranks");
}

/// By whatever method.
const std::vector<Refusal>& refusals_over_ranks() {
  using Kind = KeyTest::Kind;
  const KeyTest cuts_weights{"distributed.zero", Kind::kIsOneOf, {"3"}};
  const KeyTest are_several{"ranks", Kind::kIsMoreThan, {"1"}};
  const char* const cut = "distributed.zero 3 cuts each weight into the ranks' parts";
  static const std::vector<Refusal> rows{
      {.keys = {"data.carry_state"},
       .values = {"false"},
       .why = "ranks do not hand states to a checkpoint",
       .when = {are_several}},
      {{"memory.gradients"}, Kind::kIsOneOf, {"keep"}, "gradients are summed first"},
      {.keys = {"stretches"},
       .values = {"[]"},
       .why = "each rank's share of a step stays the same",
       .wanted = "none"},
      {{"training.cuda_graphs"}, Kind::kIsOneOf, {"false"}, "a graph does not wait for others"},
      {.keys = {"memory.weights"}, .values = {"device"}, .why = cut, .when = {cuts_weights}},
      {.keys = {"distributed.check_weights_every"},
       .values = {"0"},
       .why = cut,
       .when = {cuts_weights},
       .wanted = "0: no weight is there twice"},
      {.keys = {"memory.device_map"}, .values = {""}, .why = cut, .when = {cuts_weights}},
      {.keys = {"memory.plan"},
       .kind = Kind::kIsNoneOf,
       .values = {"auto"},
       .why = "each rank would choose its own",
       .when = {are_several},
       .wanted = "off, and the options that hybrid plan names"},
      {.keys = {"memory.device_map"},
       .kind = Kind::kIsNoneOf,
       .values = {"auto"},
       .why = "each rank would choose its own",
       .when = {are_several},
       .wanted = "places by name"},
  };
  return rows;
}

}  // namespace

void check_micro_batches(const HybridTrainerConfig& config, int ranks) {
  const std::int64_t micro_batches = config.gradient_accumulation.micro_batches;
  if (micro_batches >= ranks) return;
  throw ConfigError(
      {concat("gradient_accumulation.micro_batches: got ", micro_batches, " for ", ranks,
              " ranks; want one for each at least: ", way_to_enough_micro_batches(config, ranks))});
}

void check_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<std::string> found;
  try {
    check_micro_batches(config, ranks);
  } catch (const ConfigError& error) {
    found = error.problems();
  }
  const std::map<std::string, std::string> known{{"ranks", std::to_string(ranks)}};
  const std::string &method = config.phases.method, over_ranks = concat(ranks, " ranks");
  collect_refusals(refusals_over_ranks(), config, over_ranks, found, known);
  for (const Refusal& row : refusals_of(method)) {
    if (std::ranges::count(row.when, "ranks", &KeyTest::key) > 0)
      collect_refusals({row}, config, "phases.method " + method, found, known);
  }
  const std::string link = imitated_link_text(config.distributed);
  if (ranks > 1 && !link.empty() && find_device(config.device).type != DeviceType::kCpu)
    found.push_back("distributed.imitated_link: got " + link + ", want none on CUDA devices");
  try {
    check_backend(config.distributed, find_device(config.device));
  } catch (const ConfigError& error) {
    found.push_back(error.what());
  }
  if (!found.empty()) throw ConfigError(found);
}

}  // namespace hybrid_trainer
