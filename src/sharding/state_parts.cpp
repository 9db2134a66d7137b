#include "src/sharding/state_parts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/saved_batches.h"

namespace hybrid_trainer {
namespace {

/// Which weight a tensor of the state is of.
class WeightNames {
 public:
  explicit WeightNames(const WeightParts& parts) {
    for (std::size_t i = 0; i < parts.weights().size(); ++i) index_[parts.weights()[i]->name()] = i;
  }

  /// None for what is the same on all ranks: batches, and what routers have beside their weights.
  std::optional<std::size_t> weight_of(const std::string& name, DType dtype) const {
    if (dtype == DType::kI32 || name.starts_with(kRoutingState) || is_of_batch(name)) return {};
    std::string rest = name.substr(name.find('.') + 1);
    const std::size_t last = rest.rfind('.');
    if (name.starts_with("phases.") && last != std::string::npos)
      return numbered(name, rest.substr(last + 1));
    while (!rest.empty()) {
      if (const auto found = index_.find(rest); found != index_.end()) return found->second;
      const std::size_t dot = rest.rfind('.');
      rest.resize(dot == std::string::npos ? 0 : dot);
    }
    throw DataError(concat("the state's ", name, " is of no weight"));
  }

 private:
  static bool is_of_batch(const std::string& name) {
    return name.starts_with(concat(kSavedBatches, "."));
  }
  std::size_t numbered(const std::string& name, const std::string& number) const {
    std::size_t weight = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, weight);
    if (read.ec == std::errc() && read.ptr == end && weight < index_.size()) return weight;
    throw DataError(concat("the state's ", name, " is of none of ", index_.size(), " weights"));
  }

  std::unordered_map<std::string, std::size_t> index_;
};

/// Bytes [begin, end) of tensors that lie one after the other.
class ByteShare {
 public:
  ByteShare(std::size_t bytes, const CheckpointRanks& ranks)
      : begin_(bytes * static_cast<std::size_t>(ranks.rank()) /
               static_cast<std::size_t>(ranks.size())),
        end_(bytes * static_cast<std::size_t>(ranks.rank() + 1) /
             static_cast<std::size_t>(ranks.size())) {}

  /// The elements of the next tensor that begin there.
  Shard of_next(const Tensor& tensor) {
    const std::size_t each = size_of(tensor.dtype());
    const auto element = [&](std::size_t byte) {
      const std::size_t within = std::clamp(byte, at_, at_ + tensor.bytes()) - at_;
      return static_cast<std::int64_t>((within + each - 1) / each);
    };
    const Shard own{element(begin_), element(end_)};
    at_ += tensor.bytes();
    return own;
  }

 private:
  std::size_t begin_, end_, at_ = 0;
};

Tensor elements_of(const Tensor& tensor, const Shard& elements) {
  return tensor.view({tensor.elements()}).rows(elements.first, elements.last);
}

/// What this rank has of what is the same on all.
void add_even_share(CheckpointShare& share, const std::map<std::string, Tensor>& same,
                    const CheckpointRanks& ranks) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : same) bytes += tensor.bytes();
  ByteShare own(bytes, ranks);
  for (const auto& [name, tensor] : same) {
    const Shard elements = own.of_next(tensor);
    if (elements.elements() == 0) continue;
    share.state.tensors[name] = elements_of(tensor, elements);
    share.shapes[name] = tensor.shape();
  }
}

/// Takes out of `state` what is of weights, and adds this rank's parts of it.
void add_parts(CheckpointShare& share, std::map<std::string, Tensor>& state,
               const WeightParts& parts) {
  const WeightNames names(parts);
  for (auto one = state.begin(); one != state.end();) {
    const auto& [name, tensor] = *one;
    const auto weight = names.weight_of(name, tensor.dtype());
    if (!weight) {
      ++one;
      continue;
    }
    const std::int64_t own = parts.mine(*weight).elements();
    const Shape& whole = parts.weights()[*weight]->shape();
    if (own > 0) share.state.tensors[name] = tensor;
    if (own == whole.elements()) {
      share.shapes[name] = tensor.shape();
    } else if (tensor.elements() == own) {
      share.shapes[name] = whole;
    }
    one = state.erase(one);
  }
}

/// What of a weight's tensor belongs to its elements `part`, which here have the shape `here`.
WantedElements elements_of_part(const StoredTensor& stored, std::int64_t of_weight,
                                const Shard& part, const Shape& here) {
  const std::int64_t elements = stored.shape.elements();
  if (part.elements() == of_weight) return {0, elements, stored.shape};
  if (elements == of_weight) return {part.first, part.last, here};
  // One for each of several elements; parts begin where one of those does.
  const std::int64_t first = part.first * elements / of_weight,
                     end = part.last == of_weight ? elements : part.last * elements / of_weight,
                     last = part.elements() > 0 ? end : first;
  return {first, last, {last - first}};
}

}  // namespace

CheckpointRanks checkpoint_ranks(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return {};
  return {ranks->rank(), ranks->size(),
          [ranks](const std::string& bytes) { return ranks->host_gather(bytes); }};
}

CheckpointShare own_share(State state, const WeightParts* parts, const CheckpointRanks& ranks) {
  CheckpointShare share{std::move(state), {}};
  if (!ranks.are_several()) return share;
  std::map<std::string, Tensor> all = std::exchange(share.state.tensors, {});
  if (parts != nullptr) add_parts(share, all, *parts);
  add_even_share(share, all, ranks);
  return share;
}

std::function<WantedElements(const std::string&, const StoredTensor&)> own_elements(
    const WeightParts& parts) {
  return [names = WeightNames(parts), &parts](const std::string& name,
                                              const StoredTensor& stored) -> WantedElements {
    const auto weight = names.weight_of(name, stored.dtype);
    if (!weight) return {0, stored.shape.elements(), stored.shape};
    return elements_of_part(stored, parts.weights()[*weight]->elements(), parts.mine(*weight),
                            parts.parameters()[*weight]->shape());
  };
}

}  // namespace hybrid_trainer
