kernel t {
  %x = input 0 : f16[16,64]
  %y = call grid(4,1,1) loop(1) (%x) {
    %a = input 0 grid(0,-,-) : f16[4,64]
    output 0 (neg %a) grid(0,-,-) : real
  }
  output 0 %y : f16
}
