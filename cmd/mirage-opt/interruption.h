// SIGINT and SIGTERM while specs are compiled: the run ends within two seconds with the best so far, whatever it is doing; a second signal
// ends it at once. Private to cmd/.
#pragma once
#include <functional>

#include "mirage/driver/compile.h"

namespace mirage {

/// Handlers, the thread that writes what compile() does not come to write, and the warden. Before it is called, and in modes without a
/// result, signals end the process as they do by default. `end`: called by that thread with what was written (nullptr: nothing was there to
/// be written), to say so and to write what belongs to the whole run.
void expect_interrupts(std::function<void(const CompileResult*)> end);

const std::atomic<bool>* interrupt_flag();
bool is_interrupted();
/// kInterrupted or kTerminated, by the signal.
ExitCode interrupted_code();

/// For a Listener's `best` and `before_writing`.
void keep_best(WriteBest);
void before_writing();
/// One spec is done, or its result is about to be told: what keep_best() was given is no longer there.
void forget_best();

}  // namespace mirage
