#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

RouterCopy RouterCopy::of(Linear& router, const Stream& stream) {
  const Parameter& weight = router.weight();
  if (!weight.trainable()) return {};
  const auto copy_of = [&](const Tensor& values) {
    Tensor kept = Tensor::empty_like(values, MemoryKind::kSnapshot, stream);
    copy(kept, values, stream);
    return kept;
  };
  return {.weight = copy_of(weight.acquire(weight.compute_dtype(), stream)),
          .bias = router.bias() == nullptr ? Tensor{} : copy_of(router.acquire_bias(stream))};
}

Tensor RouterCopy::logits(const Tensor& x, const Stream& stream) const {
  Tensor logits =
      Tensor::empty({x.size(0), weight.size(0)}, x.dtype(), MemoryKind::kWorkspace, stream);
  kernels::linear_forward(logits, x, weight, bias, Tensor{}, stream);
  return logits;
}

namespace {

std::string numbered(std::string name, std::int64_t expert) {
  const std::size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, concat(expert));
}

std::vector<FileTensor> numbered(std::vector<FileTensor> tensors, std::int64_t expert) {
  for (FileTensor& tensor : tensors) {
    tensor.name = numbered(tensor.name, expert);
    if (tensor.parts > 1) tensor.part = expert;
  }
  return tensors;
}

/// Returns the pass without rounding of products, so that rounding does not change the routing.
Pass as_stored(Pass pass) {
  pass.products = nullptr;
  return pass;
}

struct FilesOfProduct {
  const std::vector<FileTensor>&weight, &bias;
};

/// Returns the weights of a routing's pairs in the order of its rows: (R).
Tensor weights_of_rows(const kernels::Routing& routing, const Stream& stream) {
  const Shape pairs{routing.pairs.size(0), 1};
  Tensor weights = Tensor::empty(pairs, DType::kF32, MemoryKind::kWorkspace, stream);
  const kernels::Routing each{.experts = routing.experts.view(pairs),
                              .weights = routing.weights.view(pairs),
                              .places = routing.places.view(pairs),
                              .pairs = routing.pairs,
                              .offsets = routing.offsets};
  kernels::gather_tokens(weights, each.weights, each, stream);
  return weights.view({pairs[0]});
}

RowsByGroup rows_of(const kernels::Routing& routing) {
  return {routing.offsets, {routing.pairs, routing.experts.size(1)}};
}

GroupedLinear products(const RoutedExperts::Spec& spec, const ModuleName& expert, const char* name,
                       const FilesOfProduct& files, const Shape& shape, const Stream& stream) {
  std::vector<Linear> linears;
  for (std::int64_t e = 0; e < spec.routing.experts; ++e) {
    const ModuleName module{numbered(expert.here, e), numbered(expert.in_files, e)};
    linears.emplace_back(module / name, shape[1], shape[0], stream, spec.biases, spec.role);
    if (!files.weight.empty()) linears.back().weight().set_in_files(numbered(files.weight, e));
    if (!files.bias.empty()) linears.back().bias()->set_in_files(numbered(files.bias, e));
  }
  return GroupedLinear(std::move(linears));
}

/// Returns a module's name below the branch, or next to it if the name begins with "../".
std::string below(const std::string& branch, const std::string& module) {
  if (!module.starts_with("../")) return branch + "." + module;
  return branch.substr(0, branch.rfind('.') + 1) + module.substr(3);
}

/// Returns the tensors of an expert's product in a folder, one for each of its modules.
std::vector<FileTensor> tensors_of(const std::string& branch,
                                   const std::vector<std::string>& modules, const Shape& shape,
                                   std::int64_t experts, const std::string& ending = ".weight") {
  const auto count = std::ssize(modules);
  std::vector<FileTensor> tensors;
  for (const std::string& module : modules) {
    const bool is_whole = module.find("{}") == std::string::npos && experts > 1;
    tensors.push_back({.name = below(branch, module) + ending,
                       .shape = {shape[0] / count, shape[1]},
                       .parts = is_whole ? experts : 1});
  }
  return tensors;
}

/// Describes a matrix of all experts. If `interleaved` is set, gate and up rows alternate.
FileTensor plain_matrix(const std::string& name, const Shape& shape, bool interleaved,
                        std::int64_t experts) {
  FileTensor tensor{
      .name = name, .shape = {shape[1], shape[0]}, .transposed = true, .parts = experts};
  if (interleaved) tensor.order = {.groups = shape[0] / 2, .rows = {1, 1}};
  return tensor;
}

FileTensor bias_of(const FileTensor& matrix) {
  return {.name = matrix.name + "_bias",
          .shape = {matrix.rows()},
          .order = matrix.order,
          .parts = matrix.parts};
}

RoutedExperts::Names plain_names(const ModuleName& branch, const ExpertMixture::Spec& spec) {
  const RoutedExperts::Spec& of = spec.experts;
  const std::int64_t experts = of.routing.experts;
  const FileTensor first = plain_matrix(below(branch.in_files, spec.files.first.front()),
                                        {2 * of.intermediate_size, of.width}, true, experts),
                   last = plain_matrix(below(branch.in_files, spec.files.last),
                                       {of.width, of.intermediate_size}, false, experts);
  return {.router = {"router", spec.files.router},
          .expert = {"experts.{}", "experts.{}"},
          .first = {first},
          .last = {last},
          .first_bias = {bias_of(first)},
          .last_bias = {bias_of(last)}};
}

RoutedExperts::Names names_of(const ModuleName& branch, const ExpertMixture::Spec& spec) {
  const RoutedExperts::Spec& of = spec.experts;
  const ExpertMixture::Files& files = spec.files;
  if (files.are_plain) return plain_names(branch, spec);
  return {.router = {"router", files.router},
          .expert = {"experts.{}", "experts.{}"},
          .first = tensors_of(branch.in_files, files.first, {2 * of.intermediate_size, of.width},
                              of.routing.experts, files.ending),
          .last = tensors_of(branch.in_files, {files.last}, {of.width, of.intermediate_size},
                             of.routing.experts, files.ending),
          .fixed_bias = files.fixed_bias};
}

RoutedExperts::Spec gated_spec(const ExpertMixture::Spec& spec) {
  return {.width = spec.experts.width,
          .intermediate_size = spec.shared_width,
          .routing = {.rule = kernels::RoutingRule::kSigmoid, .normalized = false},
          .gate = spec.experts.gate,
          .role = Role::kMatrix};
}

RoutedExperts::Names gated_names(const ModuleName& branch, const ExpertMixture::Spec& spec) {
  const ExpertMixture::Files& files = spec.files;
  const std::int64_t inner = spec.shared_width, width = spec.experts.width;
  return {.router = {"shared_gate", files.shared_gate},
          .expert = {"shared", "shared"},
          .first = tensors_of(branch.in_files, files.shared_first, {2 * inner, width}, 1),
          .last = tensors_of(branch.in_files, {files.shared_last}, {width, inner}, 1)};
}

std::string own_name(const std::string& module) {
  return module.starts_with("../") ? module.substr(3) : module;
}

GatedFeedForward::Spec shared_spec(const ExpertMixture::Spec& spec) {
  ProductFiles files{.last = own_name(spec.files.shared_last)};
  for (const std::string& module : spec.files.shared_first) files.first.push_back(own_name(module));
  return {.width = spec.experts.width,
          .intermediate_size = spec.shared_width,
          .biases = false,
          .gate = spec.experts.gate,
          .files = files};
}

/// Returns the name of the shared expert in files, which is below the branch or next to it.
ModuleName shared_name(const ModuleName& branch, const ExpertMixture::Spec& spec) {
  const bool is_beside = spec.files.shared_last.starts_with("../");
  return {branch.here + ".shared",
          is_beside ? branch.in_files.substr(0, branch.in_files.rfind('.')) : branch.in_files};
}

}  // namespace

RoutedExperts::RoutedExperts(const ModuleName& name, const Spec& spec, const Names& names,
                             const Stream& stream)
    : name_(name.here),
      spec_(spec),
      router_(name / names.router, spec.width, spec.routing.experts, stream, spec.router_bias,
              Role::kRouter),
      first_(products(spec, name / names.expert, "c_fc", {names.first, names.first_bias},
                      {2 * spec.intermediate_size, spec.width}, stream)),
      last_(products(spec, name / names.expert, "c_proj", {names.last, names.last_bias},
                     {spec.width, spec.intermediate_size}, stream)),
      count_{.layer = name.here,
             .experts = spec.routing.experts,
             .chosen = spec.routing.chosen,
             .losses = spec.losses} {
  if (spec.bias_rate > 0)
    selection_bias_ =
        Tensor::zeros({spec.routing.experts}, DType::kF32, MemoryKind::kParameters, stream);
  if (spec.fixed_bias)
    fixed_bias_.emplace(name / ModuleName("selection_bias", names.fixed_bias),
                        Shape{spec.routing.experts}, Role::kVector, stream);
}

kernels::Routing RoutedExperts::routed(const Tensor& logits, const Pass& pass,
                                       const Stream& stream) const {
  kernels::Routing routing = kernels::Routing::empty(logits.size(0), spec_.routing, stream);
  if (pass.is_token) routing.is_token = pass.is_token.view({logits.size(0)});
  if (!fixed_bias_) {
    kernels::route(routing, logits, selection_bias_, spec_.routing, stream);
    return routing;
  }
  const Weight bias = fixed_bias_->acquire_master(stream);
  kernels::route(routing, logits, bias, spec_.routing, stream);
  return routing;
}

/// Contributes a zero gradient to the bias, which is a weight in checkpoints.
void RoutedExperts::leave_fixed_bias(const Stream& stream) {
  if (!fixed_bias_) return;
  GradientContribution none(*fixed_bias_, stream);
  if (none.wanted() && none.next_mode() == kernels::GradientMode::kOverwrite)
    fill_zero(none.gradient(), stream);
}

Tensor RoutedExperts::forward(const Tensor& x, const Tensor& residual,
                              GroupedLinear::GroupSelection wanted, ActivationTape& tape,
                              const Stream& stream) {
  const Tensor rows = x.as_rows();
  const Tensor logits = router_.product(rows, Tensor{}, as_stored(tape.pass()), stream);
  const kernels::Routing routing = routed(logits, tape.pass(), stream);
  const RowsByGroup groups = rows_of(routing);
  if (router_before_.weight && tape.pass().counts)
    count_.add_flips(routing, routed(router_before_.logits(rows, stream), tape.pass(), stream),
                     stream);
  const Shape wide_rows{routing.pairs.size(0), spec_.width};
  Tensor gathered = Tensor::empty(wide_rows, x.dtype(), MemoryKind::kActivations, stream);
  kernels::gather_tokens(gathered, rows, routing, stream);
  const Tensor wide = first_.forward(gathered, groups, wanted, tape.pass(), stream);
  gathered = {};
  const Tensor active = rebuild(wide, tape.pass(), stream);
  const bool reads_x = router_.kept(rows).defined() || first_.learns();
  tape.save({ActivationRole::kProductInput, reads_x ? rows : Tensor{}, true}, stream);
  tape.save({ActivationRole::kPreActivation, logits}, stream);
  tape.save({ActivationRole::kPreActivation, wide, true}, stream);
  tape.declare_rebuildable(active, Rebuild::kActivated, wide, *this);
  tape.save({ActivationRole::kActivated, active, true}, stream);
  const Tensor results = last_.forward(active, groups, wanted, tape.pass(), stream);
  const Tensor y = Tensor::empty(rows.shape(), x.dtype(), MemoryKind::kActivations, stream);
  kernels::combine_rows(y, results, routing.weights, residual.as_rows(), routing, stream);
  return y.view(x.shape());
}

Tensor RoutedExperts::rebuild(const Tensor& source, const Pass&, const Stream& stream) {
  Tensor active = Tensor::empty({source.size(0), source.size(1) / 2}, source.dtype(),
                                MemoryKind::kActivations, stream);
  if (spec_.clamped) {
    kernels::clamped_gate_forward(active, source, *spec_.clamped, stream);
  } else {
    kernels::gated_forward(active, source, spec_.gate, stream);
  }
  return active;
}

/// Replaces `wide` with its gradient.
void RoutedExperts::gate_backward(const Tensor& wide, const Tensor& dactive,
                                  const Stream& stream) const {
  if (spec_.clamped) {
    kernels::clamped_gate_backward(wide, dactive, wide, *spec_.clamped, stream);
  } else {
    kernels::gated_backward(wide, dactive, wide, spec_.gate, stream);
  }
}

/// Returns ⟨dy, bias⟩ per row, for the gradient of the expert weights, or an undefined tensor
/// without biases.
Tensor RoutedExperts::gradient_of_biases(const Tensor& dy_rows, const Tensor& offsets,
                                         const Stream& stream) {
  if (!spec_.biases) return {};
  Tensor sums = Tensor::empty({dy_rows.size(0)}, DType::kF32, MemoryKind::kWorkspace, stream);
  for (std::size_t e = 0; e < last_.linears().size(); ++e) {
    const Weight bias = last_.linears()[e].acquire_bias(stream);
    kernels::grouped_dots(sums, dy_rows, {offsets, static_cast<std::int64_t>(e)},
                          {&bias.tensor(), 1}, stream);
  }
  return sums;
}

/// Does not need the experts' results, W·h + b: the gradient of an expert weight w is ⟨dy, W·h + b⟩
/// = ⟨Wᵀ·dy, h⟩ + ⟨dy, b⟩, and the gradient of a result is w·dy.
Tensor RoutedExperts::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Pass& pass = tape.pass();
  const Tensor active = tape.take(stream), wide = tape.take(stream), logits = tape.take(stream),
               x = tape.take(stream);
  const kernels::Routing routing = routed(logits, pass, stream);
  const RowsByGroup groups = rows_of(routing);
  if (pass.counts) count_.add(logits, routing, stream);
  Tensor rows = Tensor::empty({routing.pairs.size(0), spec_.width}, dy.dtype(),
                              MemoryKind::kActivations, stream);
  kernels::gather_tokens(rows, dy.as_rows(), routing, stream);
  Tensor dactive = last_.backward_input(rows, groups, pass, stream);
  const Tensor dweights =
      Tensor::empty(routing.weights.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::weigh_rows(dweights, gradient_of_biases(rows, routing.offsets, stream), active, dactive,
                      routing, stream);
  last_.contribute(rows, active, spec_.biases ? weights_of_rows(routing, stream) : Tensor{}, groups,
                   pass, stream);
  gate_backward(wide, dactive, stream);
  dactive = {};
  const Tensor dx =
      Tensor::empty(dy.as_rows().shape(), dy.dtype(), MemoryKind::kActivations, stream);
  kernels::combine_rows(dx, first_.backward_input(wide, groups, pass, stream), Tensor{}, Tensor{},
                        routing, stream);
  if (first_.learns()) {  // last read of the weights, which may change now
    kernels::gather_tokens(rows, x, routing, stream);
    first_.contribute(wide, rows, Tensor{}, groups, pass, stream);
  }
  rows = {};
  kernels::RoutingLosses losses = spec_.losses;
  losses.balance *= pass.gradient_scale;
  losses.z *= pass.gradient_scale;
  kernels::route_backward(logits, logits, routing, dweights, spec_.routing, losses, stream);
  const Pass of_logits = as_stored(pass);
  const LinearGradients of_router(router_, logits, x, of_logits, stream);
  const Tensor through_router = Tensor::empty_like(dx, MemoryKind::kActivations, stream);
  of_router.write_input_gradient(through_router);
  leave_fixed_bias(stream);
  kernels::add(dx, dx, through_router, stream);
  return dx.view(dy.shape());
}

void RoutedExperts::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                               const Stream& stream) {
  initialize_normal(router_.weight(), deviations.matrix, seed, stream);
  for (Linear& linear : first_.linears())
    initialize_normal(linear.weight(), deviations.matrix, seed, stream);
  for (Linear& linear : last_.linears())
    initialize_normal(linear.weight(), deviations.projection, seed, stream);
}

TokenFlops RoutedExperts::flops() const {
  TokenFlops all = router_.flops();
  for (std::int64_t j = 0; j < spec_.routing.chosen; ++j)
    all = all + first_.flops() + last_.flops();
  return all;
}

KeptNumbers RoutedExperts::kept() const {
  const auto inner = static_cast<double>(spec_.routing.chosen * spec_.intermediate_size),
             logits = static_cast<double>(spec_.routing.experts);
  return {3 * inner + logits, 2 * inner + logits, 2 * inner + logits, 2 * inner + logits};
}

void RoutedExperts::visit_parameters(const ParameterVisitor& visit) {
  router_.visit_parameters(visit);
  if (fixed_bias_) visit(*fixed_bias_);
  for (std::size_t e = 0; e < first_.linears().size(); ++e) {
    first_.linears()[e].visit_parameters(visit);
    last_.linears()[e].visit_parameters(visit);
  }
}

void RoutedExperts::visit_linears(const LinearVisitor& visit) {
  visit(router_);
  for (std::size_t e = 0; e < first_.linears().size(); ++e) {
    visit(first_.linears()[e]);
    visit(last_.linears()[e]);
  }
}

ExpertMixture::ExpertMixture(const ModuleName& name, const Spec& spec, const Stream& stream)
    : supports_segments_(spec.experts.losses.balance == 0 && spec.experts.losses.z == 0),
      experts_(name, spec.experts, names_of(name, spec), stream) {
  if (spec.shared_width == 0) return;
  if (spec.shared_gate) {
    gated_ =
        std::make_unique<RoutedExperts>(name, gated_spec(spec), gated_names(name, spec), stream);
    return;
  }
  shared_ = std::make_unique<GatedFeedForward>(shared_name(name, spec), shared_spec(spec), stream);
}

Tensor ExpertMixture::decode(const Tensor& x, const Tensor& residual, const DecodeTexts&,
                             BranchState*, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  return forward(x, residual, GroupedLinear::GroupSelection::kWithRows, tape, stream);
}

Tensor ExpertMixture::forward(const Tensor& x, const Tensor& residual,
                              GroupedLinear::GroupSelection wanted, ActivationTape& tape,
                              const Stream& stream) {
  Tensor y = residual;
  if (shared_) y = shared_->forward(x, y, tape, stream);
  if (gated_) y = gated_->forward(x, y, wanted, tape, stream);
  return experts_.forward(x, y, wanted, tape, stream);
}

Tensor ExpertMixture::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dx = experts_.backward(dy, tape, stream), rows = dx.as_rows();
  if (gated_) kernels::add(rows, rows, gated_->backward(dy, tape, stream).as_rows(), stream);
  if (shared_) kernels::add(rows, rows, shared_->backward(dy, tape, stream).as_rows(), stream);
  return dx;
}

void ExpertMixture::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                               const Stream& stream) {
  experts_.initialize(deviations, seed, stream);
  if (gated_) gated_->initialize(deviations, seed, stream);
  if (shared_) shared_->initialize(deviations, seed, stream);
}

TokenFlops ExpertMixture::flops(std::int64_t time) const {
  TokenFlops all = experts_.flops();
  if (gated_) all = all + gated_->flops();
  if (shared_) all = all + shared_->flops(time);
  return all;
}

KeptNumbers ExpertMixture::kept() const {
  KeptNumbers all = experts_.kept();
  const auto add = [&](const KeptNumbers& more) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += more[i];
  };
  if (gated_) add(gated_->kept());
  if (shared_) add(shared_->kept());
  return all;
}

void ExpertMixture::visit_parameters(const ParameterVisitor& visit) {
  experts_.visit_parameters(visit);
  if (gated_) gated_->visit_parameters(visit);
  if (shared_) shared_->visit_parameters(visit);
}

void ExpertMixture::visit_linears(const LinearVisitor& visit) {
  experts_.visit_linears(visit);
  if (gated_) gated_->visit_linears(visit);
  if (shared_) shared_->visit_linears(visit);
}

}  // namespace hybrid_trainer
