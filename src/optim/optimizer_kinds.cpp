#include "src/optim/optimizer_kinds.h"

#include <ranges>

#include "src/optim/adafactor.h"
#include "src/optim/adamw.h"
#include "src/optim/muon.h"

namespace hybrid_trainer {

namespace {

template <class T>
std::unique_ptr<Optimizer> make(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                                const Stream& stream, const StateHome& home) {
  return std::make_unique<T>(config, std::move(parameters), stream, home);
}

std::vector<std::string> names_if(auto&& holds) {
  return names_of(optimizer_kinds() | std::views::filter(holds));
}

bool reads(const OptimizerKind& kind, const std::string& key) {
  return std::ranges::count(kind.keys, key) > 0;
}

}  // namespace

std::span<const OptimizerKind> optimizer_kinds() {
  static const OptimizerKind kinds[] = {
      {.name = "adamw",
       .about = "8",
       .make = make<AdamW>,
       .keys = {"betas", "epsilon"},
       .has_8_bits = true,
       .predictor = make_adamw_predictor},
      {.name = "sgd", .about = "4", .make = make<Sgd>, .keys = {"momentum"}},
      {.name = "muon",
       .about = "4; orthogonalizes the momentum of matrices and uses adamw for the other weights",
       .make = make<Muon>,
       .keys = {"momentum", "orthogonalization_period", "orthogonalization_blocks"},
       .has_8_bits = true,
       .unit = UpdateUnit::kWhole,
       .flops = orthogonalization_flops,
       .predictor = make_muon_predictor,
       .rest = "adamw"},
      {.name = "lion",
       .about = "4",
       .make = make<Lion>,
       .keys = {"betas"},
       .has_8_bits = true,
       .predictor = make_lion_predictor},
      {.name = "adam_mini",
       .about = "4; one second moment per head, row or token",
       .make = make<AdamMini>,
       .keys = {"betas", "epsilon"},
       .unit = UpdateUnit::kBlock},
      {.name = "adafactor",
       .about = "below 0.1; second moments by rows and columns, no momentum to predict from",
       .make = make<Adafactor>,
       .unit = UpdateUnit::kWhole},
  };
  return kinds;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = names_of(optimizer_kinds());
  return names;
}

const std::vector<std::string>& optimizer_names_with_8_bits() {
  static const std::vector<std::string> names = names_if(&OptimizerKind::has_8_bits);
  return names;
}

const std::vector<std::string>& predictable_optimizer_names() {
  static const std::vector<std::string> names =
      names_if([](const OptimizerKind& kind) { return kind.predictor != nullptr; });
  return names;
}

const char* optimizer_name_help() {
  static const std::string help = [] {
    std::vector<std::string> each;
    for (const OptimizerKind& kind : optimizer_kinds())
      each.push_back(concat(kind.name, " (", kind.about, ")"));
    return concat("Update rule. Bytes of state per parameter: ", join(each), ".");
  }();
  return help.c_str();
}

KeyNeed optimizer_that_reads(const std::string& key) {
  std::vector<std::string> names, parts;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (reads(kind, key)) parts.emplace_back(kind.name);
  }
  names = parts;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.rest == nullptr || std::ranges::count(names, kind.rest) == 0) continue;
    names.emplace_back(kind.name);
    parts.push_back(concat("the weights that ", kind.name, " passes to ", kind.rest));
  }
  if (parts.size() > 1) {
    parts[parts.size() - 2] += " and " + parts.back();
    parts.pop_back();
  }
  return KeyNeed::of({"optimizer.name", "optimizer.groups[].name"}, names,
                     "it applies only to " + join(parts));
}

}  // namespace hybrid_trainer
