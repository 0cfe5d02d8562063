// Context switches: a dozen instructions on x86-64 and AArch64, ucontext elsewhere. See the header.
#include "emulate/fiber.h"

#include <new>

#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif


namespace mirage::emulate_detail {

#if defined(__x86_64__)
asm(R"(
.text
.type mirage_switch_stack, @function
mirage_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mirage_switch_stack, .-mirage_switch_stack
)");
extern "C" void mirage_switch_stack(void** save, void* load);
void switch_context(Context& from, Context& to) { mirage_switch_stack(&from.sp, to.sp); }
Context make_context(unsigned char* low, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(low + bytes - 64);
  *--top = nullptr;                               // the return address of entry: 16-byte alignment as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  return {top, nullptr};
}
#elif defined(__aarch64__)
asm(R"(
.text
.type mirage_switch_stack, %function
mirage_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size mirage_switch_stack, .-mirage_switch_stack
)");
extern "C" void mirage_switch_stack(void** save, void* load);
void switch_context(Context& from, Context& to) { mirage_switch_stack(&from.sp, to.sp); }
Context make_context(unsigned char* low, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(low + bytes - 64) - 20;
  for (int i = 0; i < 20; i++) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);       // x30
  return {top, nullptr};
}
#else
namespace {
ucontext_t& of(Context& c) {
  if (!c.spare) c.spare = new ucontext_t;         // lives as long as the child process that emulates
  return *static_cast<ucontext_t*>(c.spare);
}
}  // namespace
void switch_context(Context& from, Context& to) { swapcontext(&of(from), &of(to)); }
Context make_context(unsigned char* low, size_t bytes, void (*entry)()) {
  Context c;
  ucontext_t& u = of(c);
  getcontext(&u);
  u.uc_stack.ss_sp = low;
  u.uc_stack.ss_size = bytes;
  u.uc_link = nullptr;
  makecontext(&u, entry, 0);
  return c;
}
#endif

unsigned char* Stacks::get(size_t i) {
  while (stacks_.size() <= i) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* p = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, page, PROT_NONE);
    stacks_.push_back(static_cast<unsigned char*>(p) + page);
  }
  return stacks_[i];
}

}  // namespace mirage::emulate_detail
