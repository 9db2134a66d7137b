#pragma once

#include <iosfwd>
#include <string>

namespace hybrid_trainer {

/// Says what was ignored or left out although the work goes on: a line "warning: WHERE: WHAT" on
/// standard error. A process says the same WHAT once, whatever it was found in: a model's folder,
/// and the copies of its files in a run.
void warn(const std::string& where, const std::string& what);

/// Sends warnings elsewhere, or with null nowhere, which all ranks but the first do. Those said
/// before are forgotten.
void send_warnings_to(std::ostream* out);

}  // namespace hybrid_trainer
