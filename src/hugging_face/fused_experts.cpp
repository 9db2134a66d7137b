#include "src/hugging_face/fused_experts.h"

#include <optional>
#include <string_view>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/hugging_face/module_names.h"

namespace hybrid_trainer {
namespace {

/// The modules of an expert: whether each is the last one, and of the first ones which.
struct ExpertModule {
  std::string_view name;
  bool is_last;
  std::int64_t place;
};

constexpr ExpertModule kModules[] = {{"gate_proj.weight", false, 0}, {"up_proj.weight", false, 1},
                                     {"down_proj.weight", true, 0},  {"w1.weight", false, 0},
                                     {"w3.weight", false, 1},        {"w2.weight", true, 0}};

/// Whole tensors that have another name.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {".block_sparse_moe.gate.weight", ".mlp.gate.weight"},
    {".block_sparse_moe.router.layer.weight", ".block_sparse_moe.router.weight"},
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"}};

/// With what follows a place in the name in the place of another end.
std::optional<std::string> with_end(const std::string& name, std::string_view end,
                                    std::string_view other) {
  if (!name.ends_with(end)) return {};
  return name.substr(0, name.size() - end.size()) + std::string(other);
}

/// The tensor of all experts that holds "….mlp.experts.3.gate_proj.weight".
std::optional<FileTensor> among_all(const FileTensor& tensor, std::int64_t experts) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = tensor.name.find(kExperts);
  if (at == std::string::npos || tensor.parts > 1) return {};
  const std::size_t number = at + kExperts.size(), dot = tensor.name.find('.', number);
  if (dot == std::string::npos) return {};
  const std::int64_t expert = leading_number(std::string_view(tensor.name).substr(number));
  for (const ExpertModule& module : kModules) {
    if (tensor.name.substr(dot + 1) != module.name) continue;
    FileTensor all = tensor;
    std::string before = tensor.name.substr(0, at);
    if (const auto mixtral = with_end(before, ".block_sparse_moe", ".mlp")) before = *mixtral;
    all.name = concat(before, kExperts, module.is_last ? "down_proj" : "gate_up_proj");
    all.part = module.is_last ? expert : 2 * expert + module.place;
    all.parts = module.is_last ? experts : 2 * experts;
    return all;
  }
  return {};
}

}  // namespace

FileTensor as_held_by_version_5(const FileTensor& tensor, std::int64_t experts,
                                const std::function<bool(const std::string& name)>& contains) {
  if (contains(tensor.name)) return tensor;
  if (const auto all = among_all(tensor, experts); all && contains(all->name)) return *all;
  for (const auto& [here, there] : kRenamed) {
    const auto name = with_end(tensor.name, here, there);
    if (!name || !contains(*name)) continue;
    FileTensor renamed = tensor;
    renamed.name = *name;
    return renamed;
  }
  return tensor;
}

}  // namespace hybrid_trainer
