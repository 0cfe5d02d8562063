kernel rms_norm_linear {
  %0 = input 0 : f16[16,4096]
  %1 = input 1 : f16[4096,6144]
  %2 = call grid(192,1,1) loop(64) (%0, %1) {
    %0 = input 0 grid(-,0,-) loop(1) : f16[16,64]
    %1 = input 1 grid(1,-,-) loop(0) : f16[64,32]
    %2 = const 4096 extent 0.1
    %3 = const 1e-06
    %4 = square %0
    %5 = matmul %0 %1
    %6 = reduce.sum 1 %4
    %7 = accum.sum %5
    %8 = accum.sum %6
    %9 = div %8 %2
    %10 = add %3 %9
    %11 = sqrt %10
    %12 = div %7 %11
    output 0 %12 grid(1,0,-) : f16
  }
  output 0 %2 : f16
}
