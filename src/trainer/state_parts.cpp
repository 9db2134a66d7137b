#include "src/trainer/state_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Which weight a tensor of the state is of.
class WeightNames {
 public:
  explicit WeightNames(const std::vector<Parameter*>& weights) {
    for (std::size_t i = 0; i < weights.size(); ++i) index_[weights[i]->name()] = i;
  }

  /// None for what is the same on all ranks: batches, which are integers.
  std::optional<std::size_t> weight_of(const std::string& name, DType dtype) const {
    if (dtype == DType::kI32) return {};
    std::string rest = name.substr(name.find('.') + 1);
    const std::size_t last = rest.rfind('.');
    if (name.starts_with("phases.") && last != std::string::npos)
      return std::stoull(rest.substr(last + 1));
    while (!rest.empty()) {
      if (const auto found = index_.find(rest); found != index_.end()) return found->second;
      const std::size_t dot = rest.rfind('.');
      rest.resize(dot == std::string::npos ? 0 : dot);
    }
    throw Error(ExitCode::kInternal, concat("the state's ", name, " is of no weight"));
  }

 private:
  std::unordered_map<std::string, std::size_t> index_;
};

/// What ranks have of one tensor.
struct Pieces {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> elements;  // by rank
};

/// By name, over all ranks. A collective.
std::map<std::string, Pieces> pieces_of_all(const State& state, const WeightNames& names,
                                            const WeightParts& parts) {
  std::ostringstream mine;
  for (const auto& [name, tensor] : state.tensors) {
    const auto weight = names.weight_of(name, tensor.dtype());
    if (!weight) continue;
    const bool has_any = parts.mine(*weight).elements() > 0;
    mine << name << '\n'
         << static_cast<int>(tensor.dtype()) << ' ' << (has_any ? tensor.elements() : 0) << '\n';
  }
  std::map<std::string, Pieces> all;
  const std::vector<std::string> by_rank = parts.ranks().host_gather(mine.str());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    std::istringstream lines(by_rank[rank]);
    for (std::string name; std::getline(lines, name);) {
      int dtype = 0;
      std::int64_t elements = 0;
      lines >> dtype >> elements;
      lines.ignore();
      Pieces& pieces = all[name];
      pieces.elements.resize(by_rank.size());
      pieces.elements[rank] = elements;
      if (elements > 0) pieces.dtype = static_cast<DType>(dtype);
    }
  }
  return all;
}

}  // namespace

void gather_state(State& state, const WeightParts& parts, const Stream& host) {
  const WeightNames names(parts.weights());
  Communicator& ranks = parts.ranks();
  const auto me = static_cast<std::size_t>(ranks.rank());
  for (const auto& [name, pieces] : pieces_of_all(state, names, parts)) {
    const std::vector<std::int64_t> none(pieces.elements.size(), 0);
    const std::int64_t all =
        std::accumulate(pieces.elements.begin(), pieces.elements.end(), std::int64_t{0});
    std::vector<std::int64_t> sent = none;
    sent[0] = pieces.elements[me];
    const Tensor empty = Tensor::empty({0}, pieces.dtype, MemoryKind::kWorkspace, host);
    const Tensor mine = sent[0] > 0 ? state.tensor(name).view({sent[0]}) : empty;
    const Tensor whole =
        me == 0 ? Tensor::empty({all}, pieces.dtype, MemoryKind::kWorkspace, host) : empty;
    ranks.all_to_all(whole, me == 0 ? pieces.elements : none, mine, sent, host);
    const Parameter& weight = *parts.weights()[*names.weight_of(name, pieces.dtype)];
    state.tensors[name] = all == weight.elements() && me == 0 ? whole.view(weight.shape()) : whole;
  }
  if (me != 0) state.tensors.clear();
}

State own_part_of(const State& whole, const WeightParts& parts) {
  const WeightNames names(parts.weights());
  State own = whole;
  for (auto& [name, tensor] : own.tensors) {
    const auto weight = names.weight_of(name, tensor.dtype());
    if (!weight) continue;
    const Shard part = parts.mine(*weight);
    const std::int64_t elements = tensor.elements(),
                       of_weight = parts.weights()[*weight]->elements();
    if (elements == of_weight) {
      tensor = tensor.view({elements})
                   .rows(part.first, part.last)
                   .view(parts.parameters()[*weight]->shape());
      continue;
    }
    // One for each of several elements; parts begin where one of those does.
    const std::int64_t first = part.first * elements / of_weight,
                       last = part.last == of_weight ? elements : part.last * elements / of_weight;
    tensor = tensor.view({elements}).rows(first, part.elements() > 0 ? last : first);
  }
  return own;
}

}  // namespace hybrid_trainer
