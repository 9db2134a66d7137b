#include "src/nn/graph/plan.h"

#include <algorithm>

#include "src/core/messages.h"

namespace hybrid_trainer::graph {

std::vector<double> PartShares::of_parts(double share) const {
  std::vector<double> wanted(groups_.size()), shares(parts_.size());
  for (const Sizes& part : parts_)
    wanted[part.group] += (part.group == 0 ? share : groups_[part.group]) * part.saved();
  constexpr double kRoundingErrors = 1e-9;  // tolerance for sums
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const double saved = parts_[i].saved();
    double& left = wanted[parts_[i].group];
    if (saved == 0 || left <= kRoundingErrors * saved) continue;
    shares[i] = parts_[i].divides ? std::min(1.0, left / saved) : 1.0;
    left -= saved * shares[i];
  }
  return shares;
}

namespace {

struct ProbeInput {
  Shape shape;
  DType dtype = DType::kF32;
  bool is_of_batch = false;
};

/// A part's result for one example, and the number of elements that it saves for backward.
struct Probed {
  Shape output;
  double kept = 0;
  double least = 0;  // elements saved if the part is recomputed
};

/// Counts the saved elements, except tensors of the batch, which are in memory anyway.
class CountingTape final : public PlainTape {
 public:
  CountingTape(const Pass& pass, const std::vector<Tensor>& batch)
      : PlainTape(pass), batch_(batch) {}
  double numbers = 0;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    const TensorIdentity identity(activation.tensor);
    if (std::ranges::none_of(batch_, [&](const Tensor& of) { return identity.is_of(of); }))
      numbers += static_cast<double>(activation.tensor.elements());
    return activation.tensor;
  }
  const std::vector<Tensor>& batch_;
};

Probed probe(const PartMaker& make, const ModuleName& name, const std::vector<ProbeInput>& inputs) {
  const Stream nowhere(make_device_pool({.simulated = true}));
  std::vector<Shape> shapes;
  std::vector<PartInput> tensors;
  std::vector<Tensor> batch;
  double read = 0;
  for (const ProbeInput& input : inputs) {
    shapes.push_back(input.shape);
    tensors.push_back({Tensor::empty(input.shape, input.dtype, MemoryKind::kData, nowhere)});
    if (input.is_of_batch) batch.push_back(tensors.back().tensor);
    read += input.is_of_batch ? 0 : static_cast<double>(input.shape.elements());
  }
  const std::unique_ptr<Part> part = make(name, shapes, nowhere);
  const auto forward = [&](double share, Probed& probed) {
    CountingTape tape(Pass{.recompute = share}, batch);
    probed.output = part->forward(tensors, tape, nowhere).shape();
    return tape.numbers;
  };
  Probed probed;
  probed.kept = forward(0, probed);
  probed.least = part->recomputes_itself() ? forward(1, probed) : read;
  return probed;
}

/// Returns whether the pattern matches: "video.*" matches "video" and "video.cnn".
bool matches(const std::string& name, const std::string& pattern) {
  return matches_pattern(name, pattern) || matches_pattern(name + ".", pattern);
}

void check_node(const Node& node, const std::vector<std::string>& before) {
  const std::string& name = node.name.here;
  if (name.empty()) throw ConfigError({"network: an entry has no name"});
  if (std::ranges::count(before, name) > 0)
    throw ConfigError({concat("network: got two entries ", name, ", want different names")});
  const int kinds = (node.tensor ? 1 : 0) + (node.part ? 1 : 0) + (node.loss ? 1 : 0);
  if (kinds != 1)
    throw ConfigError({concat("network: ", name, " sets ", kinds,
                              " of tensor, part and loss; want exactly one")});
  if (node.loss && !(node.weight > 0))
    throw ConfigError(
        {concat("network: the weight of ", name, " is ", node.weight, ", want a number above 0")});
}

}  // namespace

std::string described(const Entry& entry) { return entry.name.here + " " + entry.shape.text(); }

Plan::Plan(std::vector<Node> nodes, std::uint64_t seed, const Stream& stream) {
  for (Node& node : nodes) add(std::move(node), seed, stream);
  refuse_unread();
}

void Plan::add(Node node, std::uint64_t seed, const Stream& stream) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name.here);
  check_node(node, names);
  Entry entry{.name = node.name, .tensor = node.tensor, .weight = node.weight};
  for (const std::string& read : node.reads) {
    const auto found = std::ranges::find(names, read);
    const auto place = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || entries_[place].loss)
      throw ConfigError(
          {concat("network: ", node.name.here, " reads ", read,
                  ", which is not an earlier tensor or part", name_hint(read, names))});
    entry.reads.push_back(place);
    ++entries_[place].readers;
  }
  if (node.part) return add_part(std::move(entry), node, seed, stream);
  if (node.loss) return add_loss(std::move(entry), node);
  entry.shape = entry.tensor->shape;
  entries_.push_back(std::move(entry));
  shares_.add(0, 0, false);
}

void Plan::add_part(Entry entry, const Node& node, std::uint64_t seed, const Stream& stream) {
  const std::vector<Shape> shapes = read_shapes(entry);
  try {
    std::vector<ProbeInput> inputs;
    for (const std::size_t read : entry.reads) {
      const std::optional<BatchTensor>& tensor = entries_[read].tensor;
      inputs.push_back(
          {entries_[read].shape, tensor ? tensor->dtype : DType::kF32, tensor.has_value()});
    }
    const Probed probed = probe(node.part, entry.name, inputs);
    entry.shape = probed.output;
    entry.part = node.part(entry.name, shapes, stream);
    shares_.add(probed.kept, probed.least, entry.part->recomputes_itself());
  } catch (const ShapeMismatch& error) {
    std::vector<std::string> read;
    for (const std::size_t place : entry.reads) read.push_back(described(entries_[place]));
    throw ShapeMismatch(concat("network: part ", entry.name.here, " reads ", join(read, " and "),
                               ", whose shapes do not match: ", error.what()));
  }
  entry.part->initialize(seed, stream);
  entries_.push_back(std::move(entry));
}

void Plan::add_loss(Entry entry, const Node& node) {
  const Entry& read = entries_[entry.reads.front()];
  if (read.tensor)
    throw ConfigError({concat("network: loss ", entry.name.here, " reads ", read.name.here,
                              ", a tensor of the batch; want a part's result")});
  try {
    entry.loss = node.loss(read.shape, node.targets);
  } catch (const ShapeMismatch& error) {
    throw ShapeMismatch(
        concat("network: loss ", entry.name.here, " reads ", described(read), ": ", error.what()));
  }
  entries_.push_back(std::move(entry));
  shares_.add(0, 0, false);
}

/// Rejects parts on which no loss depends, because they would never be trained.
void Plan::refuse_unread() const {
  bool has_loss = false;
  for (const Entry& entry : entries_) {
    has_loss |= entry.loss != nullptr;
    if (entry.readers > 0 || entry.loss) continue;
    throw ConfigError(
        {concat("network: no part or loss reads ", entry.name.here,
                ", so it has no effect; leave it out, or add a part or loss that reads it")});
  }
  if (!has_loss) throw ConfigError({"network: it has no loss, want at least one"});
}

std::vector<Shape> Plan::read_shapes(const Entry& entry) const {
  std::vector<Shape> shapes;
  for (const std::size_t read : entry.reads) shapes.push_back(entries_[read].shape);
  return shapes;
}

std::vector<std::string> Plan::names_of_parts() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.part) names.push_back(entry.name.here);
  return names;
}

std::size_t Plan::part_of(const std::string& name) const {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.part != nullptr && entry.name.here == name;
  });
  if (found == entries_.end())
    throw ConfigError(
        {concat("network: there is no part ", name, name_hint(name, names_of_parts()))});
  return static_cast<std::size_t>(found - entries_.begin());
}

std::vector<bool> Plan::trained() const {
  std::vector<bool> trained;
  for (const Entry& entry : entries_) {
    bool is_trained = false;
    for (const std::size_t read : entry.reads) is_trained = is_trained || trained[read];
    if (entry.part)
      entry.part->visit_parameters(
          [&](Parameter& parameter) { is_trained = is_trained || parameter.trainable(); });
    trained.push_back(is_trained);
  }
  return trained;
}

std::vector<bool> Plan::leading_to(std::size_t last) const {
  std::vector<bool> leads(entries_.size());
  leads[last] = true;
  for (std::size_t i = last + 1; i-- > 0;)
    if (leads[i])
      for (const std::size_t read : entries_[i].reads) leads[read] = true;
  return leads;
}

void Plan::set_parts(const std::vector<PartSettings>& settings) {
  std::vector<std::string> problems, taken(entries_.size());
  std::vector<std::vector<std::size_t>> groups(settings.size());
  for (std::size_t k = 0; k < settings.size(); ++k) {
    const PartSettings& part = settings[k];
    const std::string key = "parts: " + part.pattern;
    if (part.recompute && !(*part.recompute >= 0 && *part.recompute <= 1))
      problems.push_back(concat(key, ": recompute is ", *part.recompute, ", want 0 to 1"));
    if (part.dtype && *part.dtype != DType::kF32 && *part.dtype != DType::kBF16)
      problems.push_back(concat(key, ": got ", name_of(*part.dtype), ", want f32 or bf16"));
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::string& name = entries_[i].name.here;
      if (!entries_[i].part || !matches(name, part.pattern)) continue;
      if (!taken[i].empty())
        problems.push_back(concat("parts: ", name, " is matched by ", taken[i], " and by ",
                                  part.pattern, "; want one pattern per part"));
      taken[i] = part.pattern;
      groups[k].push_back(i);
    }
    if (groups[k].empty())
      problems.push_back(
          concat(key, " matches no part", name_hint(part.pattern, names_of_parts())));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  shares_.clear();
  for (Entry& entry : entries_) entry.dtype.reset();
  for (std::size_t k = 0; k < settings.size(); ++k) {
    if (settings[k].recompute) shares_.set_group(groups[k], *settings[k].recompute);
    for (const std::size_t i : groups[k]) entries_[i].dtype = settings[k].dtype;
  }
  for (const Entry& entry : entries_)
    if (entry.part)
      entry.part->visit_parameters(
          [&](Parameter& parameter) { parameter.set_fixed_compute_dtype(entry.dtype); });
}

double Plan::flops() const {
  const std::vector<bool> trains = trained();
  double sum = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].part) continue;
    const bool wants =
        std::ranges::any_of(entries_[i].reads, [&](auto read) { return trains[read]; });
    const TokenFlops flops =
        entries_[i].part->flops(read_shapes(entries_[i]), entries_[i].shape, wants);
    sum += flops.forward + (trains[i] ? flops.backward : 0);
  }
  return sum;
}

double Plan::recomputed_flops(double share) const {
  const std::vector<double> shares = recomputed(share);
  const std::vector<bool> trains = trained();
  double sum = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.part && trains[i] && shares[i] > 0)
      sum += entry.part->recomputed_flops(read_shapes(entry), entry.shape, shares[i]);
  }
  return sum;
}

}  // namespace hybrid_trainer::graph
