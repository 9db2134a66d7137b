#include "hybrid_trainer/nn/routed_experts.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// The name with the expert's number in place of {}.
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

/// The pass of a router, whose products stay as they are: what they choose is not to depend on
/// rounding.
Pass as_stored(Pass pass) {
  pass.products = nullptr;
  return pass;
}

struct FilesOfProduct {
  const std::vector<FileTensor>&weight, &bias;
};

/// The weights of a routing's pairs, as of its rows: (R).
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

/// One product of each expert.
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

}  // namespace

RoutedExperts::RoutedExperts(const ModuleName& name, const Spec& spec, const Names& names,
                             const Stream& stream)
    : name_(name.here),
      spec_(spec),
      router_(name / names.router, spec.width, spec.routing.experts, stream, spec.router_bias,
              Role::kRouter),
      first_(products(spec, name / names.expert, "c_fc", {names.first, names.first_bias},
                      {2 * spec.inner_width, spec.width}, stream)),
      last_(products(spec, name / names.expert, "c_proj", {names.last, names.last_bias},
                     {spec.width, spec.inner_width}, stream)),
      count_{.layer = name.here,
             .experts = spec.routing.experts,
             .chosen = spec.routing.chosen,
             .losses = spec.losses} {
  if (spec.bias_rate > 0)
    selection_bias_ =
        Tensor::zeros({spec.routing.experts}, DType::kF32, MemoryKind::kParameters, stream);
}

kernels::Routing RoutedExperts::routed(const Tensor& logits, const Pass& pass,
                                       const Stream& stream) const {
  kernels::Routing routing = kernels::Routing::empty(logits.size(0), spec_.routing, stream);
  if (pass.is_token) routing.is_token = pass.is_token.view({logits.size(0)});
  kernels::route(routing, logits, selection_bias_, spec_.routing, stream);
  return routing;
}

Tensor RoutedExperts::forward(const Tensor& x, const Tensor& residual, GroupedLinear::Wanted wanted,
                              ActivationTape& tape, const Stream& stream) {
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
  tape.can_rebuild(active, Rebuild::kActivated, wide, *this);
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

/// Over `wide`.
void RoutedExperts::gate_backward(const Tensor& wide, const Tensor& dactive,
                                  const Stream& stream) const {
  if (spec_.clamped) {
    kernels::clamped_gate_backward(wide, dactive, wide, *spec_.clamped, stream);
  } else {
    kernels::gated_backward(wide, dactive, wide, spec_.gate, stream);
  }
}

/// What a weight's gradient gets of the expert's last bias: ⟨dy, bias⟩ of each row; undefined where there
/// is none.
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

/// A token's weight w of an expert and what the expert gives, W·h + b, have the gradients ⟨dy, W·h + b⟩ =
/// ⟨Wᵀ·dy, h⟩ + ⟨dy, b⟩ and w·dy, so that what the expert gave need not be kept.
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
  if (first_.learns()) {  // the weights, which may change now, are not read any more
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
  kernels::add(dx, dx, through_router, stream);
  return dx.view(dy.shape());
}

void RoutedExperts::initialize(const FirstDeviations& deviations, std::uint64_t seed,
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
  const auto inner = static_cast<double>(spec_.routing.chosen * spec_.inner_width),
             logits = static_cast<double>(spec_.routing.experts);
  return {3 * inner + logits, 2 * inner + logits, 2 * inner + logits, 2 * inner + logits};
}

void RoutedExperts::visit_parameters(const ParameterVisitor& visit) {
  router_.visit_parameters(visit);
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

}  // namespace hybrid_trainer
