#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Turns a run's records into the records of a TensorBoard event file: a length, the event, and a
/// masked CRC-32C of each. The event is a message of tensorflow/core/util/event.proto.
class TensorBoardEvents {
 public:
  /// `begin`: of the run, in seconds since 1970.
  explicit TensorBoardEvents(double begin) : begin_(begin) {}
  double begin() const { return begin_; }
  /// What a file starts with: its version, the word that all that was read before is void, and the
  /// run's settings as text at step 0.
  std::string preface(const std::string& settings) const;
  /// One event with every number that the record has. Its time is the run's begin and the seconds
  /// of all records so far.
  std::string of(const StepRecord& record);

 private:
  double begin_;
  double seconds_ = 0;
};

/// The first record of a file.
struct EventFileStart {
  double begin = 0;       // of the run
  std::size_t bytes = 0;  // of the record, which without the others makes a file of no steps
};
/// Of a file that starts with these bytes; none where TensorBoardEvents did not write it.
std::optional<EventFileStart> start_of_events(std::string_view start);

}  // namespace hybrid_trainer
