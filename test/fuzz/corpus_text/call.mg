kernel rms_linear {
  %x = input 0 : f16[16,4096]      %w = input 1 : f16[4096,4096]
  %y = call grid(64,1,1) loop(64) (%x, %w) {
    %a = input 0 grid(-,-,-) loop(1) : f16[16,64]     %b = input 1 grid(1,-,-) loop(0) : f16[64,64]
    %c = accum.sum (matmul %a %b)     %d = accum.sum (reduce.sum 1 (square %a))
    output 0 (div %c (sqrt %d)) grid(1,-,-)
  }
  output 0 %y
}
