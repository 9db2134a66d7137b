#include "src/chat/allowance.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::jinja {

namespace {

/// A template in use takes some hundreds for a message, and a quadratic one as many for each pair.
constexpr std::size_t kOperations = 5'000'000, kOperationsPerByte = 50;
/// All texts and lists that are made, one after another.
constexpr std::size_t kMadeBytes = std::size_t{64} << 20, kMadePerByte = 1024;
constexpr std::size_t kOutputBytes = std::size_t{4} << 20, kOutputPerByte = 64;
constexpr std::size_t kBytesPerOperation = 64;

std::size_t copied_bytes(const Value& value) {
  if (const auto* text = value.if_is<std::string>()) return text->size();
  const auto* sequence = value.if_is<Sequence>();
  if (sequence == nullptr) return 0;
  std::size_t bytes = 0;
  for (const Value& item : *sequence->items) {
    const auto* inner = item.if_is<Sequence>();
    const bool is_pair = inner != nullptr && inner->is_tuple;
    bytes += sizeof(Value) + (is_pair || item.is<std::string>() ? copied_bytes(item) : 0);
  }
  return bytes;
}

}  // namespace

Allowance::Allowance(std::size_t input_bytes)
    : input_bytes_(input_bytes), most_operations_(kOperations + kOperationsPerByte * input_bytes) {}

void Allowance::refuse() const {
  throw Problem(concat("the template computes without end: it has done ", most_operations_,
                       " operations, for a chat of ", input_bytes_,
                       " bytes; look for loops in loops and macros that call macros"));
}

void Allowance::spend_on_bytes(std::size_t bytes) {
  bytes_ += bytes;
  const std::size_t most = kMadeBytes + kMadePerByte * input_bytes_;
  if (bytes_ > most)
    throw Problem(concat("the template makes texts and lists of more than ", most >> 20,
                         " MiB, for a chat of ", input_bytes_,
                         " bytes; look for a loop that doubles a text or a list"));
  spend_on_reading(bytes);
}

void Allowance::spend_on_reading(std::size_t bytes) { spend(bytes / kBytesPerOperation); }

void Allowance::spend_on_copy(const Value& value) { spend_on_bytes(copied_bytes(value)); }

void Allowance::check_output(std::size_t bytes) const {
  const std::size_t most = kOutputBytes + kOutputPerByte * input_bytes_;
  if (bytes > most)
    throw Problem(concat("the template writes more than ", most >> 20, " MiB, for a chat of ",
                         input_bytes_, " bytes"));
}

}  // namespace hybrid_trainer::jinja
