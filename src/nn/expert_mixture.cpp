#include "hybrid_trainer/nn/expert_mixture.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {
namespace {

/// A module's name below a branch's, or beside it.
std::string below(const std::string& branch, const std::string& module) {
  if (!module.starts_with("../")) return branch + "." + module;
  return branch.substr(0, branch.rfind('.') + 1) + module.substr(3);
}

/// The tensors of a product of one expert in a folder, by the modules that its rows are of.
std::vector<FileTensor> tensors_of(const std::string& branch,
                                   const std::vector<std::string>& modules, const Shape& shape,
                                   std::int64_t experts) {
  const auto count = std::ssize(modules);
  std::vector<FileTensor> tensors;
  for (const std::string& module : modules) {
    const bool is_whole = module.find("{}") == std::string::npos && experts > 1;
    tensors.push_back({.name = below(branch, module) + ".weight",
                       .shape = {shape[0] / count, shape[1]},
                       .parts = is_whole ? experts : 1});
  }
  return tensors;
}

/// A matrix of all experts, whose rows are gates and ups in turn where there are both.
FileTensor plain_matrix(const std::string& name, const Shape& shape, bool in_turn,
                        std::int64_t experts) {
  FileTensor tensor{
      .name = name, .shape = {shape[1], shape[0]}, .transposed = true, .parts = experts};
  if (in_turn) tensor.order = {.groups = shape[0] / 2, .rows = {1, 1}};
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
                                        {2 * of.inner_width, of.width}, true, experts),
                   last = plain_matrix(below(branch.in_files, spec.files.last),
                                       {of.width, of.inner_width}, false, experts);
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
          .first = tensors_of(branch.in_files, files.first, {2 * of.inner_width, of.width},
                              of.routing.experts),
          .last = tensors_of(branch.in_files, {files.last}, {of.width, of.inner_width},
                             of.routing.experts)};
}

/// The shared expert as one of one.
RoutedExperts::Spec gated_spec(const ExpertMixture::Spec& spec) {
  return {.width = spec.experts.width,
          .inner_width = spec.shared_width,
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

/// A module's name without the way to beside the branch.
std::string own_name(const std::string& module) {
  return module.starts_with("../") ? module.substr(3) : module;
}

GatedFeedForward::Spec shared_spec(const ExpertMixture::Spec& spec) {
  ProductFiles files{.last = own_name(spec.files.shared_last)};
  for (const std::string& module : spec.files.shared_first) files.first.push_back(own_name(module));
  return {.width = spec.experts.width,
          .inner_width = spec.shared_width,
          .biases = false,
          .gate = spec.experts.gate,
          .files = files};
}

/// Where the shared expert's module stands in files: below the branch, or beside it.
ModuleName shared_name(const ModuleName& branch, const ExpertMixture::Spec& spec) {
  const bool is_beside = spec.files.shared_last.starts_with("../");
  return {branch.here + ".shared",
          is_beside ? branch.in_files.substr(0, branch.in_files.rfind('.')) : branch.in_files};
}

}  // namespace

ExpertMixture::ExpertMixture(const ModuleName& name, const Spec& spec, const Stream& stream)
    : goes_in_segments_(spec.experts.losses.balance == 0 && spec.experts.losses.z == 0),
      experts_(name, spec.experts, names_of(name, spec), stream) {
  if (spec.shared_width == 0) return;
  if (spec.shared_gate) {
    gated_ =
        std::make_unique<RoutedExperts>(name, gated_spec(spec), gated_names(name, spec), stream);
    return;
  }
  shared_ = std::make_unique<GatedFeedForward>(shared_name(name, spec), shared_spec(spec), stream);
}

Tensor ExpertMixture::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                              const Stream& stream) {
  return forward(x, residual, GroupedLinear::Wanted::kAll, tape, stream);
}

Tensor ExpertMixture::decode(const Tensor& x, const Tensor& residual, const DecodeTexts&,
                             BranchState*, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  return forward(x, residual, GroupedLinear::Wanted::kWithRows, tape, stream);
}

Tensor ExpertMixture::forward(const Tensor& x, const Tensor& residual, GroupedLinear::Wanted wanted,
                              ActivationTape& tape, const Stream& stream) {
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

void ExpertMixture::initialize(const FirstDeviations& deviations, std::uint64_t seed,
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
