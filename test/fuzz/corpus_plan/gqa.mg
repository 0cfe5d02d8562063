kernel gqa {
  %0 = input 0 : f16[2,256,64]
  %1 = input 1 : f16[2,64,4096]
  %2 = input 2 : f16[2,4096,64]
  %3 = call grid(4,16,1) loop(64) (%0, %1, %2) {
    %0 = input 0 grid(-,1,0) loop(-) : f16[2,16,64]
    %1 = input 1 grid(-,-,0) loop(2) : f16[2,64,64]
    %2 = matmul %0 %1
    %3 = reduce.max 2 %2
    %4 = running %3
    %5 = input 2 grid(2,-,0) loop(1) : f16[2,64,16]
    %6 = sub %2 %4
    %7 = exp %6
    %8 = reduce.sum 2 %7
    %9 = matmul %7 %5
    %10 = accum.sum rescaled 1 %8 %4
    %11 = accum.sum rescaled 1 %9 %4
    %12 = div %11 %10
    output 0 %12 grid(2,1,0) : f16
  }
  output 0 %3 : f16
}
